"""How are rows read again from their source: for a new base, to replay, to repair?"""

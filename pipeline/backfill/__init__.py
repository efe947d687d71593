"""Reads rows again from their source: for a new base, to replay, to repair."""

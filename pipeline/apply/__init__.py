"""Merges the change log into mirrors: the newest change of each key, with an account."""

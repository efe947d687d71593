"""Holds one file per transport: topic ids, offsets and bounded reads."""

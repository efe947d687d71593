"""Backfills: reads rows from their source for a new base, a replay or a repair."""

"""Mirrors as Delta tables: their writers, their files, their upkeep, and how they are read."""

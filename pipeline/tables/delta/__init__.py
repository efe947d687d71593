"""Mirrors as Delta tables: their writers, their files, their maintenance, and how they are read."""

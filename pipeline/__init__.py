"""Moves changes from the sources' logs into the lake, and rows into mirrors."""

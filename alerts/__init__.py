"""Remembers what is wrong, and tells the right people."""

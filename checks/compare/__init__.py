"""Compares all values of source and mirror at one position."""

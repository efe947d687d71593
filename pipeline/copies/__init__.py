"""Rows of mirrors sent on to other stores; a file here is a kind of copy, by its name."""

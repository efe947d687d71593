"""Lands topics in the change log, in bounded batches of one commit with one checkpoint."""

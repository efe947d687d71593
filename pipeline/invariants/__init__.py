"""Invariants: conditions on the rows of a mirror, one module each, named by its config key."""

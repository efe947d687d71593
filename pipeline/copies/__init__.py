"""Copies of mirrors in other stores; each kind of copy has a module of its name."""

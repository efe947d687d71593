"""Asking a database server, without harming it."""

"""Mirrors as Delta tables: writers, files, maintenance and readers."""

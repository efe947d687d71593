"""Keeps incidents, and notifies the people who can act."""

"""The change events of DBEvents."""

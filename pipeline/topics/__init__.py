"""Reading topics between two offsets, and their settings."""

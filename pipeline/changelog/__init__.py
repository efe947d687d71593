"""The append-only lake table of all changes: its columns, its marks, how it is read."""

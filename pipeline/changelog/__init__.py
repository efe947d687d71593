"""The append-only lake table of all changes: its columns, its checkpoints, how it is read."""

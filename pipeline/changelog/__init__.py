"""The append-only lake table of all changes: its columns, checkpoints, readers and maintenance."""

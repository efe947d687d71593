"""What writes an ordered log into topics and tells nobody: its heartbeats tell how far it is."""

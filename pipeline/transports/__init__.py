"""One file a transport: offsets, topic ids and bounded reads."""

"""One file a message format: bytes of a topic become columns of the change log."""

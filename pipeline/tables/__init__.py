"""One file a table format: reading mirrors and the change log without Spark."""

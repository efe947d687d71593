"""The Spark process: what it does, and who keeps it alive."""

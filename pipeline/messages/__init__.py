"""What one message says, in Spark and without it."""

"""The Spark process: its protocol, its supervisor, and the worker that runs in it."""

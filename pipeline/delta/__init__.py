"""The log of a Delta table: how it is read at one version, committed to and maintained."""

"""The source for Postgres, read by logical replication; one source is one database of a server."""

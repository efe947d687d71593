"""A Postgres server that is read by logical replication: one source is one of its databases."""

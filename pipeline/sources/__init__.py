"""One file a source: what Sluice asks of a database server."""

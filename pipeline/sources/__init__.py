"""Sources, one module or package each: the queries that Sluice sends to a database server."""

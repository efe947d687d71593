"""A server with its tables -> a config that names them."""

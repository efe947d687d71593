"""The HTTP server: API, status page, docs and metrics."""

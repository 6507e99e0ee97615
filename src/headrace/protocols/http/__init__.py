"""The HTTP server: a thin layer over the broker. The PgQueue API at the root, the REST API under /v1."""

"""The HTTP server: a thin layer over the broker. The queue API of seed 004 at the root, the REST API under /v1."""

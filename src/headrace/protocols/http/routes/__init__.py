"""The operations of the HTTP server, one module for each resource."""

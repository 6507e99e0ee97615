"""Clients of a server: HTTP for administration, Arrow Flight for messages."""

"""Talking to a server: HTTP for administration, Arrow Flight for messages."""

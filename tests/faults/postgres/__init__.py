"""Faults of servers that share a database, and of the database itself."""

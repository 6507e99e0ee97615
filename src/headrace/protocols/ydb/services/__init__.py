"""Unary calls: discovery and sign-in, directories, topics, consumers; and the table of all methods."""

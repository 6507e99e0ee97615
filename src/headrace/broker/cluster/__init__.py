"""Servers that share a store: what they announce to each other."""

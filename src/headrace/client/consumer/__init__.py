"""Consumers: of one topic or several, group membership, prefetch."""

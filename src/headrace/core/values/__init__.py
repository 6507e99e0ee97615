"""Schemas of values: what they may say, how they may grow, and how values become columns."""

"""Schemas of values."""

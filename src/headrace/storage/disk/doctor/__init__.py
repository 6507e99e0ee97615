"""Checking a store that no server has open."""

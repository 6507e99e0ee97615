"""Measures the console in a real browser."""

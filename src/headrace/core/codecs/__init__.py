"""Compression of message values: whole columns, and one module for each format."""

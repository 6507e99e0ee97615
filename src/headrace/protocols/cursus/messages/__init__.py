"""Bytes to commands and records, and answers to bytes."""

"""Headrace on PostgreSQL beside PostgreSQL itself, the design of seed 004, and a queue of rows."""

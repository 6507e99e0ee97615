"""Headrace on PostgreSQL beside PostgreSQL itself, the design of PgQueue, and a queue of rows."""

"""A table of PostgreSQL as sink, each batch once."""

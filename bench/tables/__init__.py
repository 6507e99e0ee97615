"""Archived topics as tables: how much of a table a query over a part of it reads, in Spark and in DuckDB."""

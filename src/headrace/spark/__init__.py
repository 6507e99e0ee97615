"""Headrace on Spark: the data source `headrace`, its functions, and the pipelines."""

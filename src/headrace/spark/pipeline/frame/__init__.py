"""The DataFrame of a pipeline, from left to right: source, parse, deduplicate, SQL."""

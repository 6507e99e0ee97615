"""Where the rows of a pipeline go: topics and tables."""

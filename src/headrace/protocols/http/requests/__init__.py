"""What a request may contain: bodies, queries, paths, content types."""

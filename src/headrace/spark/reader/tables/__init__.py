"""Tables of topics in Spark: files of the archive, the tail from the broker, and columns of values."""

"""Starting Spark: a Java, a home without the zip, workers that start quickly."""

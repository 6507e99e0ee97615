"""Where Spark looks for data sources by itself: `spark.read.format("headrace")` works after install."""

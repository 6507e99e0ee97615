"""Where Spark looks for data sources by itself: `spark.read.format("headrace")` works after install."""

from headrace.spark.source import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]

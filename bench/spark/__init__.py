"""The data source on Spark, local[2], warm: each figure beside Spark's own way of doing the same, in one run."""

"""Functions that SQL of a pipeline may call beside Spark's own: the broker's hashing, over whole columns."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from headrace.spark.functions import hash_array, murmur2_array, partition_array


def register(spark: SparkSession) -> None:
    """Make them known to a session."""
    spark.udf.register("fnv1a64", arrow_udf(hash_array, "bigint"))  # type: ignore[call-overload]
    spark.udf.register("murmur2", arrow_udf(murmur2_array, "int"))  # type: ignore[call-overload]
    spark.udf.register("partition_for", arrow_udf(partition_array, "int"))  # type: ignore[call-overload]

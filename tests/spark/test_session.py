"""The session that tests and pipelines start."""

from __future__ import annotations

from pyspark.sql import SparkSession


def test_it_runs_on_this_machine(spark: SparkSession) -> None:
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45

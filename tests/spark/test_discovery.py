"""How Spark finds the data source, also a Spark that is too old for it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import pyspark_headrace
from headrace.spark.source import HeadraceSource


@pytest.mark.parametrize("version", ["4.0.1", "4.1.0", "3.5.3"])
def test_an_older_spark_is_told_the_version_it_takes(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    found = pyspark_headrace.default_source(version)
    assert found.name() == HeadraceSource.name()
    with pytest.raises(ImportError, match=f"needs Spark 4.2 or newer, and this is Spark {version}"):
        found({})


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0.dev1", "5.0.0", "10.1.0"])
def test_a_newer_spark_gets_the_source(version: str) -> None:
    assert pyspark_headrace.default_source(version) is HeadraceSource


def test_spark_shows_what_the_too_old_source_says(spark: SparkSession) -> None:
    class TooOld(pyspark_headrace.TooOldSource):
        @classmethod
        def name(cls) -> str:
            return "headrace_on_an_older_spark"

    spark.dataSource.register(TooOld)
    with pytest.raises(Exception, match=r"needs Spark 4\.2 or newer"):
        spark.read.format("headrace_on_an_older_spark").load()

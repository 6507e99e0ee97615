"""Spark with its own file system for S3 (hadoop-aws) on a real S3 server: tables of an archived topic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace.spark
from headrace.spark.session import session
from tests.spark.test_table import plan_of, rows_of
from tests.storage.archive.object_store import CREDENTIALS, ObjectStore
from tests.tables.archives import archive_site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.object_store,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
JARS = Path(__file__).parent / "spark_jars" / "target"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    jars = sorted(str(jar) for jar in JARS.glob("*.jar"))
    assert jars, "Spark's file system for S3 is missing: make s3-jars"
    # Spark's Java looks for credentials in its environment, as the server does.
    os.environ.update(CREDENTIALS)
    spark = session("local[2]", configuration={"spark.jars": ",".join(jars)})
    yield spark
    spark.stop()


def test_a_table_is_read_by_sparks_own_reader(spark: SparkSession, objects: ObjectStore, tmp_path: Path) -> None:
    with archive_site(tmp_path, objects.url) as site:
        site.create("orders", 3)
        site.publish("orders", range(300))
        site.archive("orders")
        site.publish("orders", range(300, 400), codec="zstd")
        site.archive("orders")
        site.publish("orders", range(400, 450))
        table = headrace.spark.table(spark, "orders", url=site.url)
        assert "FileScan parquet" in plan_of(table), "with filters that reach the statistics"
        assert rows_of(table) == rows_of(headrace.spark.read(spark, "orders", url=site.url))

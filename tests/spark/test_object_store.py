"""Tables whose archive is on a real S3 server, in a Spark that has no file system for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import headrace.spark
from headrace.spark.file_systems import s3a_options
from tests.spark.test_table import rows_of
from tests.storage.archive.object_store import ObjectStore
from tests.tables.archives import ArchiveSite, archive_site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveSite]:
    """A topic with a file of plain values, one of compressed ones, and a tail."""
    with ObjectStore() as store, archive_site(tmp_path_factory.mktemp("tables"), store.url) as site:
        site.create("orders", 3)
        site.publish("orders", range(300))
        site.archive("orders")
        site.publish("orders", range(300, 400), codec="zstd")
        site.archive("orders")
        site.publish("orders", range(400, 450))
        yield site


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"decode": False, "startingOffsets": {"0": 50, "1": 60, "2": 0}, "endingOffsets": {"0": 70, "1": 65, "2": 20}},
    ],
)
def test_the_rows_are_those_of_the_broker(spark: SparkSession, site: ArchiveSite, options: dict[str, Any]) -> None:
    read = headrace.spark.read(spark, "orders", url=site.url, **options)
    assert rows_of(headrace.spark.table(spark, "orders", url=site.url, **options)) == rows_of(read)


def test_columns_of_values(spark: SparkSession, site: ArchiveSite) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    rows = headrace.spark.table(spark, "orders", url=site.url, columns="offset", value_schema=schema)
    assert rows.columns == ["offset", "id", "value_error"]
    assert sorted(row.id for row in rows.collect()) == list(range(450))


def test_columns_are_chosen_and_rows_counted(spark: SparkSession, site: ArchiveSite) -> None:
    topics = headrace.spark.table(spark, "orders", url=site.url, columns="topic", startingOffsets=-1)
    assert [row.topic for row in topics.collect()] == ["orders"] * 3
    assert headrace.spark.table(spark, "orders", url=site.url).where("offset >= 10").count() == 450 - 30


def test_options_of_the_archive_are_those_of_its_bucket() -> None:
    url = "s3://history/archive?region=eu-west-1&endpoint_override=127.0.0.1%3A9000&scheme=http"
    assert s3a_options(url) == {
        "fs.s3a.bucket.history.endpoint.region": "eu-west-1",
        "fs.s3a.bucket.history.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.bucket.history.connection.ssl.enabled": "false",
        "fs.s3a.bucket.history.path.style.access": "true",
    }
    assert s3a_options("s3://history/archive") == s3a_options("file:///var/lib/archive") == {}

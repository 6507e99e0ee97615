"""Spark with its own file system for S3 (hadoop-aws) on a real S3 server: tables of an archived topic, pipelines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace.spark
from headrace.spark.file_systems import s3a_options
from headrace.spark.pipeline import Pipeline
from headrace.spark.session import session
from headrace.tables.files import open_archive
from tests.object_store.gateway import Gateway
from tests.spark.test_table import plan_of, rows_of
from tests.storage.archive.object_store import BUCKET, CREDENTIALS, ObjectStore
from tests.tables.archives import archive_site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.object_store,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
# Another bucket than that of the archive.
LANDING = "landing"
JARS = Path(__file__).parent / "spark_jars" / "target"


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """One for all: Java keeps a file system of each bucket, with the address that it had first."""
    directory = tmp_path_factory.mktemp("objects")
    (directory / LANDING).mkdir()
    with ObjectStore(Gateway(directory)) as store:
        yield store


@pytest.fixture(scope="module")
def spark(objects: ObjectStore) -> Iterator[SparkSession]:
    """With settings of one bucket only: those of the archive's come from its URL."""
    jars = sorted(str(jar) for jar in JARS.glob("*.jar"))
    assert jars, "Spark's file system for S3 is missing: make s3-jars"
    # Spark's Java looks for credentials in its environment, as the server does.
    os.environ.update(CREDENTIALS)
    options = s3a_options(objects.url.replace(BUCKET, LANDING))
    settings = {f"spark.hadoop.{name}": value for name, value in options.items()}
    spark = session("local[2]", configuration={"spark.jars": ",".join(jars), **settings})
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


def test_pipelines_load_from_and_replay_an_object_store(
    spark: SparkSession, objects: ObjectStore, tmp_path: Path
) -> None:
    """Files on S3 into a topic, a stream of files on S3 into the same, and the archived topic read again."""
    place = f"s3a://{LANDING}/orders"
    with open_archive(objects.url)[0].open_output_stream(f"{LANDING}/orders/first.json") as file:
        file.write(b"".join(b'{"id": %d, "customer": "ann"}\n' % number for number in range(100)))
    with archive_site(tmp_path, objects.url) as site:
        site.create("orders")
        server = {"url": site.url}
        source = {"format": "json", "path": place, "schema": "id BIGINT, customer STRING"}
        sink = {"topic": "orders", "value": "to_json(struct(*))"}
        for parts in (
            {"source": source, "sink": sink},
            {"source": source | {"mode": "stream"}, "sink": sink, "run": {"checkpoint": str(tmp_path / "checkpoint")}},
        ):
            run = Pipeline.of({"server": server, **parts}).run(spark, once=True)
            assert run.messages == 100
        site.archive("orders")
        replay = {"source": {"topic": "orders", "mode": "batch", "schema": "id BIGINT"}, "sink": {"format": "report"}}
        counted = {"name": "counted", "sql": "SELECT count(*), count(DISTINCT id) FROM source"}
        pipeline = Pipeline.of({"server": server, "steps": [counted], **replay})
        pipeline.run(spark)
        assert pipeline.report is not None and pipeline.report.rows == [[200, 100]]

"""Spark with its own file system for S3 (hadoop-aws) on a real S3 server: tables of an archived topic, pipelines."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import headrace.spark
from headrace.client import Client
from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.spark.file_systems import s3a_options
from headrace.spark.pipeline import Pipeline
from headrace.spark.pipeline.run.checkpoint_files import HadoopFiles
from headrace.spark.pipeline.run.claim import Claim, Claimed
from headrace.tables.files import open_archive
from tests.object_store.pipelines import (
    LANDING,
    PATIENCE_SECONDS,
    PipelineProcess,
    await_in,
    orders,
    settings_of,
)
from tests.pipeline.runs import publish, run, values
from tests.server_process import ServerProcess
from tests.spark.test_table import plan_of, rows_of
from tests.storage.archive.object_store import BUCKET, ObjectStore
from tests.tables.archives import archive_site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.object_store,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_a_table_is_read_by_sparks_own_reader(spark: SparkSession, lake: ObjectStore, tmp_path: Path) -> None:
    with archive_site(tmp_path, lake.url) as site:
        site.create("orders", 3)
        site.publish("orders", range(300))
        site.archive("orders")
        site.publish("orders", range(300, 400), codec="zstd")
        site.archive("orders")
        site.publish("orders", range(400, 450))
        table = headrace.spark.table(spark, "orders", url=site.url)
        assert "FileScan parquet" in plan_of(table), "with filters that reach the statistics"
        assert rows_of(table) == rows_of(headrace.spark.read(spark, "orders", url=site.url))


def test_pipelines_load_from_and_replay_an_object_store(spark: SparkSession, lake: ObjectStore, tmp_path: Path) -> None:
    """Files on S3 into a topic, a stream of files on S3 into the same, and the archived topic read again."""
    place = f"s3a://{LANDING}/orders"
    with open_archive(lake.url)[0].open_output_stream(f"{LANDING}/orders/first.json") as file:
        file.write(b"".join(b'{"id": %d, "customer": "ann"}\n' % number for number in range(100)))
    with archive_site(tmp_path, lake.url) as site:
        site.create("orders")
        server = {"url": site.url}
        source = {"format": "json", "path": place, "schema": "id BIGINT, customer STRING"}
        sink = {"topic": "orders", "value": "to_json(struct(*))"}
        stream = {"source": source | {"mode": "stream"}, "run": {"checkpoint": str(tmp_path / "checkpoint")}}
        # The same files are loaded once, wherever they are.
        for parts, messages in (({"source": source}, 100), ({"source": source}, 0), (stream, 100)):
            run = Pipeline.of({"server": server, "sink": sink, **parts}).run(spark, once=True)
            assert run.messages == messages
        site.archive("orders")
        replay = {"source": {"topic": "orders", "mode": "batch", "schema": "id BIGINT"}, "sink": {"format": "report"}}
        counted = {"name": "counted", "sql": "SELECT count(*), count(DISTINCT id) FROM source"}
        pipeline = Pipeline.of({"server": server, "steps": [counted], **replay})
        pipeline.run(spark)
        assert pipeline.report is not None and pipeline.report.rows == [[200, 100]]


def copying(url: str, checkpoint: str, **parts: Any) -> dict[str, Any]:
    """A pipeline that copies a topic, in many batches."""
    return {
        "server": {"url": url},
        "source": {"topic": "orders", "max_messages_per_trigger": 20},
        "sink": {"topic": "copied"},
        "run": {"checkpoint": checkpoint, "report": False},
        **parts,
    }


def ids(client: Client) -> list[int]:
    return sorted(value["id"] for value in values(client, "copied"))


def test_a_stream_continues_from_a_checkpoint_on_s3(spark: SparkSession, server: ServerProcess, client: Client) -> None:
    """With state: rows that came before are known after each start."""
    place = f"s3a://{LANDING}/checkpoints/continued"
    tables = copying(server.url, place, deduplicate={"by": "payload", "window_seconds": 3600})
    # Each partition has a store of its state, of many small lake.
    tables["spark"] = {"spark.sql.shuffle.partitions": "2"}
    for end in (30, 50):
        publish(client, "orders", orders(0, end))
        Pipeline.of(tables).check(spark)
        run(spark, tables)
        assert ids(client) == list(range(end)), "each once"
    files = HadoopFiles(spark, place)
    assert sorted(files.list("")) == ["headrace-pipeline.json", "headrace-runs", "spark"]
    claim = Claim(files)
    claim.take(lambda seconds: False)
    with pytest.raises(StoreUnavailable, match="another run uses this checkpoint"):
        run(spark, tables)
    claim.release()
    assert run(spark, tables).messages == 0


def test_an_older_run_finds_out_that_it_was_taken_over(spark: SparkSession) -> None:
    files = HadoopFiles(spark, f"s3a://{LANDING}/checkpoints/claimed")
    claim = Claim(files)
    claim.take(lambda seconds: False)
    claim.check()
    assert files.create("headrace-runs/00000002", msgspec.json.encode(Claimed("another", "spark")))
    with pytest.raises(StoreUnavailable, match="a newer run has taken over"):
        claim.check()
    claim.release()


def test_a_store_creates_an_object_once(spark: SparkSession) -> None:
    files = HadoopFiles(spark, f"s3a://{LANDING}/created")
    assert files.create("one", b"first") and not files.create("one", b"second")
    assert files.create("one", b"first"), "as if the answer to the first request was lost"
    assert files.read("one") == b"first" and files.read("two") is None and files.list("nothing") == []


def test_a_bucket_that_does_not_exist(spark: SparkSession, lake: ObjectStore) -> None:
    there = spark.newSession()
    for name, value in s3a_options(lake.url.replace(BUCKET, "missing")).items():
        there.conf.set(name, value)
    with pytest.raises(InvalidInput, match="cannot use it") as refused:
        HadoopFiles(there, "s3a://missing/created").create("one", b"")
    assert refused.value.field == "run.checkpoint"


@pytest.mark.timeout(4 * PATIENCE_SECONDS)
def test_runs_that_are_killed_or_paused_are_taken_over(
    spark: SparkSession, lake: ObjectStore, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """A run that wakes up after it was taken over writes nothing more."""
    tables = copying(server.url, f"s3a://{LANDING}/checkpoints/killed", spark=settings_of(lake))
    publish(client, "orders", orders(0, 600))
    for fault in (signal.SIGKILL, signal.SIGSTOP):
        count = len(ids(client))
        process = PipelineProcess(tables, tmp_path)
        await_in(lambda count=count: len(ids(client)) >= count + 40, process)  # type: ignore[misc]
        process.signal(fault)
        assert len(ids(client)) < 600, "in the middle"
        if fault == signal.SIGKILL:
            process.end()
    here = {name: keys for name, keys in tables.items() if name != "spark"} | {"source": {"topic": "orders"}}
    run(spark, here)
    assert ids(client) == list(range(600))
    publish(client, "orders", orders(600, 700))
    process.signal(signal.SIGCONT)
    code, said = process.end()
    # The broker refuses its batch if it looked for a newer run before it was paused, and publishes after that.
    assert code != 0, said
    run(spark, here)
    assert ids(client) == list(range(700))

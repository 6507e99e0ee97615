"""Delta tables with one row per key: the newest row counts, and each batch is merged once, whatever is killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Client
from headrace.spark.pipeline import PipelineFailed
from headrace.spark.pipeline.definition.description import TableSink
from headrace.spark.pipeline.sinks.file_commit import CommitManifest
from headrace.spark.pipeline.sinks.upsert_sink import UpsertSinkWriter
from headrace.spark.write.fingerprint import BatchId
from tests.pipeline.runs import forget_last_batch, publish, run, run_ready

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """As a SIGKILL would: nothing catches it."""


def rows_of(table: Path, *columns: str) -> list[tuple[Any, ...]]:
    from deltalake import DeltaTable

    found = DeltaTable(str(table)).to_pyarrow_table().select(columns).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_the_ready_pipeline_keeps_the_newest_row_of_each_key(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    table = tmp_path / "table"
    variables = {
        "SERVER": url, "TOPIC": topic, "TABLE": str(table), "CHECKPOINT": str(tmp_path / "cp"), "KEY": "id",
        "SCHEMA": "id BIGINT NOT NULL, name STRING, gone BOOLEAN", "DELETE_WHEN": "gone",
    }  # fmt: skip
    publish(client, topic, [{"id": number % 3, "name": f"{number}"} for number in range(9)], "id")
    run_ready(spark, "upsert", **variables)
    assert rows_of(table, "id", "name") == [(0, "6"), (1, "7"), (2, "8")]

    forget_last_batch(tmp_path / "cp")
    publish(client, topic, [{"id": 1, "gone": True}, {"id": 2, "name": "new"}, {"id": 3, "name": "first"}], "id")
    publish(client, topic, [{"id": 4, "name": "brief"}, {"id": 4, "gone": True}], "id")
    run_ready(spark, "upsert", **variables)
    assert rows_of(table, "id", "name") == [(0, "6"), (2, "new"), (3, "first")]


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_kill_beside_the_merge(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_merged: bool
) -> None:
    """Killed before the log has the batch, it is merged when it is repeated; killed after, it is not merged again."""
    from deltalake import DeltaTable

    sink = TableSink(format="delta", path=str(tmp_path), mode="upsert", keys=["Order Id"], order_by=["at"])
    first = spark.createDataFrame([(1, "a", 1), (1, "b", 2), (2, "a", 1)], "`Order Id` INT, v STRING, at INT")
    second = spark.createDataFrame([(1, "c", 3)], first.schema)
    merge = UpsertSinkWriter.commit

    def killed(writer: UpsertSinkWriter, manifest: CommitManifest) -> None:
        if is_merged:
            merge(writer, manifest)
        raise Killed

    writer = opened(sink, first)
    writer.write(writer.prepare(first), BatchId(0, 7))
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(UpsertSinkWriter, "commit", killed)
        writer.write(writer.prepare(second), BatchId(1, 8))
    writer.close()
    versions = DeltaTable(str(tmp_path)).version()
    again = opened(sink, second)
    again.write(again.prepare(second), BatchId(1, 8))
    again.close()
    assert rows_of(tmp_path, "Order Id", "v") == [(1, "c"), (2, "a")]
    assert DeltaTable(str(tmp_path)).version() == versions + (not is_merged)


def opened(sink: TableSink, rows: Any) -> UpsertSinkWriter:
    writer = UpsertSinkWriter(sink, "writer", is_stream=True)
    writer.prepare(rows)
    writer.open()
    return writer


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT id, name FROM source", "one batch has 2 rows of id 1"),
        ("SELECT name, NULLIF(id, 1) AS id FROM source", "NULL"),
    ],
)
def test_keys_that_identify_no_row(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path, sql: str, told: str
) -> None:
    client.create_topic(topic)
    publish(client, topic, [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}])
    with pytest.raises(PipelineFailed, match=told):
        run(
            spark,
            {
                "server": {"url": url},
                "source": {"topic": topic, "schema": "id BIGINT, name STRING"},
                "steps": [{"name": "rows", "sql": sql}],
                "sink": {"format": "delta", "path": str(tmp_path / "table"), "mode": "upsert", "keys": ["id"]},
                "run": {"checkpoint": str(tmp_path / "cp")},
            },
        )  # fmt: skip

"""Values that do not fit their codec, in pipelines: they are dead letters; tests/poison.py has the scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.client import Client
from headrace.core.codecs import columns as codecs
from headrace.spark.pipeline import PipelineFailed
from tests import poison
from tests.pipeline.runs import messages, run, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORED = [row.value for row in poison.ROWS if row.plain is None]


def fill(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send_batch(poison.batch())
        good = [codecs.compress(b'{"id": %d}' % number, "gzip") for number in range(3)]
        producer.send_batch(pa.record_batch({"value": good, "codec": ["gzip"] * 3}))


def test_they_are_dead_letters_of_a_stream(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    fill(client, topic)
    tables: dict[str, Any] = {
        "server": {"url": url},
        "source": {
            "topic": topic,
            "schema": "id BIGINT NOT NULL",
            "columns": ["value", "topic", "partition", "offset"],
        },
        "steps": [{"name": "seen", "sql": "SELECT id, to_json(message) AS message FROM source"}],
        "sink": {"topic": f"{topic}-out", "value": "to_json(struct(*))", "partitions": 1},
        "dead_letters": {"topic": f"{topic}-dead", "partitions": 1},
        "run": {"checkpoint": str(tmp_path / "cp")},
    }
    summary = run(spark, tables)
    assert (summary.messages, summary.dead_letters) == (len(poison.ROWS) + 3, len(poison.ROWS))
    written = values(client, f"{topic}-out")
    assert [row["id"] for row in written] == [0, 1, 2]
    assert not any("codec" in row["message"] for row in written), "it was not asked for"
    dead = messages(client, f"{topic}-dead")
    told = {int(attributes["headrace.offset"]): attributes for attributes in (dict(row["attributes"]) for row in dead)}
    assert sorted(told) == list(range(len(poison.ROWS)))
    for offset in poison.BAD:
        name = str(poison.ROWS[offset].codec)
        assert told[offset]["headrace.reason"].decode() == f"the value cannot be decoded by its codec {name}"
    found = {int(dict(row["attributes"])["headrace.offset"]): row["value"] for row in dead}
    assert [found[offset] for offset in poison.BAD] == STORED


def test_they_are_dead_letters_of_a_batch_without_a_schema(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    fill(client, topic)
    tables: dict[str, Any] = {
        "server": {"url": url},
        "source": {"topic": topic, "mode": "batch"},
        "sink": {"format": "parquet", "path": str(tmp_path / "good")},
        "dead_letters": {"format": "parquet", "path": str(tmp_path / "dead")},
    }
    summary = run(spark, tables)
    assert (summary.messages, summary.dead_letters) == (len(poison.ROWS) + 3, len(poison.BAD))
    dead = pq.read_table(tmp_path / "dead").sort_by("offset")
    assert dead["offset"].to_pylist() == poison.BAD
    assert dead["value"].to_pylist() == STORED
    good = pq.read_table(tmp_path / "good").sort_by("offset")
    assert good["value"].to_pylist() == [*poison.VALUES, b'{"id": 0}', b'{"id": 1}', b'{"id": 2}']


def test_without_dead_letters_they_end_a_pipeline_unless_told_otherwise(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    fill(client, topic)
    tables: dict[str, Any] = {
        "server": {"url": url},
        "source": {"topic": topic, "mode": "batch"},
        "sink": {"format": "parquet", "path": str(tmp_path / "good")},
    }
    with pytest.raises(PipelineFailed, match=f"offset {poison.BAD[0]} of partition 0 of topic '{topic}'"):
        run(spark, tables)
    tables["source"]["on_undecodable"] = "skip"
    assert run(spark, tables).messages == len(poison.VALUES) + 3

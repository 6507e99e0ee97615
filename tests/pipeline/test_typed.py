"""Pipelines over topics with a schema of their values: fields come as columns, and columns become values."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from headrace.client import Client
from headrace.core.errors import InvalidInput
from headrace.spark import Pipeline
from headrace.spark.pipeline import PipelineFailed
from headrace.spark.pipeline.definition.load import describe
from tests.pipeline.runs import messages, publish, run, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVRO = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "long"}, {"name": "key", "type": "string"}],
    "framing": "registry",
    "schema_ids": [7],
}
JSON = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "who": {"type": "string"}}}


def framed(id: int, key: str) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO, {"id": id, "key": key})
    return b"\0\0\0\0\7" + out.getvalue()


def tables_of(url: str, topic: str, directory: Path, **source: Any) -> dict[str, Any]:
    return {
        "server": {"url": url},
        "source": {"topic": topic, "values": "typed", **source},
        "steps": [{"name": "renamed", "sql": "SELECT id, value_key AS who, message.key AS key FROM source"}],
        "sink": {"topic": f"{topic}-out", "values": "typed"},
        "dead_letters": {"topic": f"{topic}-dead", "partitions": 1},
        "run": {"checkpoint": str(directory / "checkpoint")},
    }


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_avro_of_a_registry_becomes_json(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path, mode: str
) -> None:
    client.create_topic(topic, value_schema=AVRO)
    client.create_topic(f"{topic}-out", value_schema=JSON)
    publish(client, topic, [framed(1, "a"), b"no header", framed(2, "b")])
    tables = tables_of(url, topic, tmp_path, mode=mode)
    if mode == "batch":
        tables["run"] = {}
    summary = run(spark, tables)
    assert (summary.messages, summary.dead_letters) == (3, 1)
    assert values(client, f"{topic}-out") == [{"id": 1, "who": "a"}, {"id": 2, "who": "b"}]
    assert {row["key"] for row in messages(client, f"{topic}-out")} == {b"k"}
    (dead,) = messages(client, f"{topic}-dead")
    told = dict(dead["attributes"])
    assert dead["value"] == b"no header" and told["headrace.offset"] == b"1"
    assert told["headrace.reason"] == b"the value does not begin with the header of a schema registry"


def test_only_named_fields_are_read_and_one_that_is_wrong_ends_the_run(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, value_schema=JSON)
    client.create_topic(f"{topic}-out")
    publish(client, topic, [{"id": 1, "who": 5}])
    tables = tables_of(url, topic, tmp_path, columns=["id"])
    tables["steps"] = []
    tables["sink"] = {"topic": f"{topic}-out", "value": "to_json(struct(* EXCEPT (message)))"}
    del tables["dead_letters"]
    assert run(spark, tables).messages == 1
    assert values(client, f"{topic}-out") == [{"id": 1}]
    publish(client, topic, [{"id": "two"}])
    told = (
        f"the schema of its topic \\(the field id: expected integer, got string\\) topic {topic} partition 0 offset 1"
    )
    with pytest.raises(PipelineFailed, match=told):
        run(spark, tables)


def test_columns_that_the_target_does_not_have_are_found_first(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, value_schema=AVRO)
    client.create_topic(f"{topic}-out", value_schema=JSON)
    tables = tables_of(url, topic, tmp_path)
    tables["steps"] = [{"name": "all", "sql": "SELECT * FROM source"}]
    with pytest.raises(InvalidInput, match="column is 'value_key': the fields of values are id, who"):
        Pipeline.of(tables).check(spark)


def test_rows_of_a_test_are_compared_before_they_become_values(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    tables = tables_of("headrace://127.0.0.1:1", topic, tmp_path, values="raw", schema="id BIGINT, value_key STRING")
    value = json.dumps({"id": 1, "value_key": "a"})
    tables["tests"] = [{"name": "one", "source": [{"value": value}], "expect": [{"id": 1, "who": "a"}]}]
    assert all(result.is_passed for result in Pipeline.of(tables).test(spark))
    tables["source"] = {"topic": topic, "values": "typed"}
    with pytest.raises(InvalidInput, match="and a test asks no broker"):
        Pipeline.of(tables).test(spark)


@pytest.mark.parametrize(
    ("source", "sink", "told"),
    [
        ({"schema": "id BIGINT"}, {}, "source.schema is id BIGINT: the schema of the topic is used"),
        ({"decode": False}, {}, "source.decode is false"),
        ({}, {"value": "'x'"}, "sink.value is 'x': values are made of columns"),
    ],
)
def test_what_does_not_go_together(source: dict[str, Any], sink: dict[str, Any], told: str, tmp_path: Path) -> None:
    tables = tables_of("headrace://127.0.0.1:1", "orders", tmp_path, **source)
    tables["sink"] |= sink
    with pytest.raises(InvalidInput, match=told):
        describe(tables, {})

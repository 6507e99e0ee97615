"""Fields of values as columns: the data source, `read` and `read_stream` with `values=typed`."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSourceWriter
from pyspark.sql.types import StructType

import headrace.spark
from headrace.client import Client
from headrace.core.errors import InvalidInput
from headrace.spark.options import read_options
from headrace.spark.reader.batch_reader import plan_batch, row_reader
from headrace.spark.source import HeadraceSource
from tests.spark.starting import PatientQuery
from tests.spark.topics import publish, read, read_fast, read_stream, values_of

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "Amount": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object", "properties": {"city": {"type": "string"}, "lat": {"type": "number"}}},
        "prices": {"type": "object", "additionalProperties": {"type": "number"}},
        "key": {"type": "string"},
    },
}
FULL = {
    "id": 1,
    "Amount": 2.5,
    "at": "2026-07-01T12:00:00Z",
    "tags": ["a", "b"],
    "place": {"city": "Oslo", "lat": 59.9},
    "prices": {"x": 1.5},
    "key": "k",
}
AVRO = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}
WAYS = ("data source", "read", "stream", "read_stream")


def rows_of(way: str, spark: SparkSession, url: str, topic: str, directory: Path, **options: str) -> list[Row]:
    """The rows of a topic, by one of the ways to read it."""
    options = {"values": "typed", **options}
    if way == "data source":
        return read(spark, url, topic, **options).collect()
    if way == "read":
        return headrace.spark.read(spark, topic, url=url, **options).collect()
    stream = (read_stream if way == "stream" else read_fast)(spark, url, topic, startingOffsets="earliest", **options)
    landed, checkpoint = str(directory / "landed"), str(directory / "checkpoint")
    writing = stream.writeStream.format("parquet").option("path", landed).option("checkpointLocation", checkpoint)
    PatientQuery(lambda: writing.trigger(availableNow=True).start()).finish(240)
    frame: DataFrame = spark.read.parquet(landed)
    return frame.collect()


def by_id(rows: list[Row]) -> dict[int | None, dict[str, Any]]:
    return {row.id: row.asDict(recursive=True) for row in rows}


@pytest.mark.parametrize("way", WAYS)
def test_fields_are_columns(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path, way: str
) -> None:
    client.create_topic(topic, partitions=2, value_schema=SCHEMA)
    publish(client, topic, [json.dumps(FULL).encode(), b'{"id": 2}', b'{"id": "three"}'], [b"a", b"b", b"c"])
    found = rows_of(
        way, spark, url, topic, tmp_path, columns="id,amount,at,tags,place,prices,value_key,key,value_error"
    )
    assert found[0].asDict().keys() == {
        "id", "Amount", "at", "tags", "place", "prices", "value_key", "key", "value_error"
    }  # fmt: skip
    rows = by_id(found)
    assert rows[1] == {
        **{name: FULL[name] for name in ("id", "Amount", "tags", "place", "prices")},
        "at": datetime(2026, 7, 1, 12, tzinfo=UTC).astimezone().replace(tzinfo=None),
        "value_key": "k",
        "key": b"a",
        "value_error": None,
    }
    assert rows[2]["Amount"] is None and rows[2]["value_error"] is None
    assert rows[None]["key"] == b"c" and rows[None]["value_error"] == "the field id: expected integer, got string"


def test_all_fields_follow_the_columns_of_messages(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, value_schema=SCHEMA)
    publish(client, topic, [json.dumps(FULL).encode()])
    (row,) = rows_of("data source", spark, url, topic, tmp_path)
    assert row.value == json.dumps(FULL).encode() and row.place.city == "Oslo" and row.offset == 0
    assert list(row.asDict())[-8:] == ["id", "Amount", "at", "tags", "place", "prices", "value_key", "value_error"]


def test_avro_behind_the_header_of_a_registry(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, value_schema={**AVRO, "framing": "registry"})
    record = io.BytesIO()
    fastavro.schemaless_writer(record, AVRO, {"id": 7, "note": "seven"})
    publish(client, topic, [b"\0\0\0\0\5" + record.getvalue(), record.getvalue()])
    rows = rows_of("data source", spark, url, topic, tmp_path, columns="offset,note,value_error")
    assert [(row.note, bool(row.value_error)) for row in sorted(rows)] == [("seven", False), (None, True)]


def batches(url: str, topic: str, **options: str) -> list[dict[str, Any]]:
    """What a task reads, without Spark."""
    parsed = read_options({"url": url, "topic": topic, "values": "typed", **options})
    reader, _ = row_reader(parsed)
    return [row for split in plan_batch(parsed) for batch in reader.read(split) for row in batch.to_pylist()]


def test_a_value_is_judged_by_the_fields_that_are_read(url: str, client: Client, topic: str) -> None:
    client.create_topic(topic, value_schema=SCHEMA)
    publish(client, topic, [b'{"id": 1, "Amount": "much"}', b'{"Amount": 2}'])
    assert batches(url, topic, columns="id") == [{"id": 1}, {"id": None}]
    assert batches(url, topic, columns="amount") == [{"Amount": None}, {"Amount": 2.0}]
    errors = [row["value_error"] for row in batches(url, topic, columns="value_error")]
    assert errors == ["the field Amount: expected number, got string", "the field id is missing"]


def test_a_value_that_does_not_fit_can_be_an_error(url: str, client: Client, topic: str) -> None:
    client.create_topic(topic, value_schema=SCHEMA)
    publish(client, topic, [b'{"id": 1}', b'{"id": "two"}'])
    assert batches(url, topic, columns="id", onInvalid="raise", endingOffsets="1") == [{"id": 1}]
    told = f"at offset 1 of partition 0 of topic '{topic}' is invalid: the field id: expected integer, got string"
    with pytest.raises(InvalidInput, match=told):
        batches(url, topic, columns="id", onInvalid="raise")


def test_compressed_values_are_decoded_first(url: str, client: Client, topic: str) -> None:
    client.create_topic(topic, value_schema=SCHEMA, codecs=["raw", "zstd"])
    with client.producer(topic, codec="zstd") as producer:
        producer.send(b'{"id": 5}')
    assert batches(url, topic, columns="id,codec") == [{"id": 5, "codec": None}]


def test_topics_must_have_one_schema(url: str, client: Client, topic: str) -> None:
    client.create_topic(topic, value_schema=SCHEMA)
    for name, schema, said in (("none", None, "has none"), ("other", AVRO, "have different ones")):
        client.create_topic(f"{topic}-{name}", value_schema=schema)
        with pytest.raises(InvalidInput, match=said):
            batches(url, f"{topic},{topic}-{name}")
    with pytest.raises(InvalidInput, match="there is no topic yet"):
        row_reader(read_options({"url": url, "topicPattern": f"{topic}-x-.*", "values": "typed"}))


def test_names_of_nothing_are_refused(url: str, client: Client, topic: str) -> None:
    client.create_topic(topic, value_schema=SCHEMA)
    with pytest.raises(InvalidInput, match="the fields of values are id, Amount, at, tags, place"):
        batches(url, topic, columns="id,amont")
    with pytest.raises(InvalidInput, match="set values=typed too"):
        read_options({"topic": topic, "onInvalid": "raise"})
    with pytest.raises(InvalidInput, match="fields of values need values=typed"):
        read_options({"topic": topic, "columns": "id"})
    with pytest.raises(InvalidInput, match="a table has all fields"):
        headrace.spark.table(None, topic, url=url, values="typed")  # type: ignore[arg-type]


ORDERS = "id BIGINT, amount FLOAT, tags ARRAY<STRING>, place STRUCT<city STRING>, value_key STRING, key STRING"
ROWS = [(1, 2.5, ["a"], ("Oslo",), "k", "a"), (2, None, None, None, None, None)]


def fields_of(schema: str) -> StructType:
    kind = StructType.fromDDL(schema)
    assert isinstance(kind, StructType)
    return kind


def sink(url: str, topic: str, schema: str, **options: str) -> DataSourceWriter:
    source = HeadraceSource({"url": url, "topic": topic, "values": "typed", **options})
    return source.writer(fields_of(schema), False)


def test_columns_become_values(spark: SparkSession, url: str, client: Client, topic: str) -> None:
    client.create_topic(topic, value_schema=SCHEMA)
    rows = spark.createDataFrame(ROWS, ORDERS).coalesce(1)
    rows.write.format("headrace").options(url=url, topic=topic, values="typed").mode("append").save()
    first = {"id": 1, "Amount": 2.5, "tags": ["a"], "place": {"city": "Oslo"}, "key": "k"}
    assert [json.loads(value) for value in values_of(client, topic)] == [first, {"id": 2}]
    assert [row["key"] for row in batches(url, topic, columns="key")] == [b"a", None]


def test_a_stream_of_fields_becomes_avro(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, value_schema=SCHEMA)
    publish(client, topic, [b'{"id": 1, "key": "one"}', b'{"id": 2, "key": "two"}'])
    target = f"{topic}-avro"
    client.create_topic(target, value_schema={**AVRO, "framing": "registry", "schema_ids": [9]})
    read = read_stream(
        spark, url, topic, startingOffsets="earliest", values="typed", columns="id,value_key", onInvalid="raise"
    )
    writing = read.withColumnRenamed("value_key", "note").writeStream.format("headrace")
    given = {"url": url, "topic": target, "values": "typed", "checkpointLocation": str(tmp_path / "checkpoint")}
    PatientQuery(lambda: writing.options(**given).trigger(availableNow=True).start()).finish(240)
    assert batches(url, target, columns="id,note,value_error") == [
        {"id": 1, "note": "one", "value_error": None},
        {"id": 2, "note": "two", "value_error": None},
    ]
    assert {value[:5] for value in values_of(client, target)} == {b"\0\0\0\0\x09"}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("id BIGINT, value BINARY", "column is 'value': with values=typed it is made of the other columns"),
        ("id BIGINT, value_error STRING", "column is 'value_error'"),
        ("amount DOUBLE", "column is 'id' missing"),
        ("id BIGINT, offset BIGINT", "column is 'offset'"),
        ("id STRING", "column id is of type string: it must be integer"),
        ("id BIGINT, price DOUBLE", "column is 'price': the fields of values are id, amount, at"),
    ],
)
def test_columns_that_cannot_be_values_are_refused(
    url: str, client: Client, topic: str, schema: str, told: str
) -> None:
    client.create_topic(topic, value_schema=SCHEMA)
    with pytest.raises(InvalidInput, match=told):
        sink(url, topic, schema)


def test_typed_writes_need_one_topic_with_a_schema(url: str, client: Client, topic: str) -> None:
    client.create_topic(topic)
    with pytest.raises(InvalidInput, match=f"value_schema is topic '{topic}' has none"):
        sink(url, topic, "id BIGINT")
    with pytest.raises(InvalidInput, match="values=typed needs the option topic"):
        HeadraceSource({"url": url, "values": "typed"}).streamWriter(fields_of("id BIGINT"), False)
    with pytest.raises(InvalidInput, match="row 1: id is null: the schema of the values requires it"):
        client.alter_topic(topic, value_schema=SCHEMA)
        sink(url, topic, "id BIGINT").write(iter([pa.record_batch({"id": [1, None]})]))

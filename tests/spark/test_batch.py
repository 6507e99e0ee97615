"""Batches on a real Spark: a topic read as a DataFrame, and a DataFrame written to a topic."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

import headrace.spark
from headrace.client import Client
from headrace.core.errors import InvalidInput
from headrace.spark.reader.frame import option_text
from headrace.spark.schema import READ_COLUMNS
from tests.spark.starting import PatientQuery
from tests.spark.topics import PATIENCE_SECONDS, numbers, publish, read, read_stream, values_of

CREATED = datetime(2026, 11, 15, 12, 30, 0, 123456, tzinfo=UTC)
PUSHING = "spark.sql.python.filterPushdown.enabled"


def test_every_column_comes_back_as_it_was_published(spark: SparkSession, client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    with client.producer(topic) as producer:
        producer.send_batch(
            pa.record_batch(
                {
                    "value": pa.array([b"full", b"bare"], pa.binary()),
                    "key": pa.array([b"k", None], pa.binary()),
                    "attributes": pa.array([[("kind", b"sale")], None], pa.map_(pa.string(), pa.binary())),
                    "created_at": pa.array([CREATED, None], pa.timestamp("us", "UTC")),
                    "producer_id": ["till-7", None],
                    "message_group_id": ["shop", None],
                    "seqno": pa.array([3, None], pa.int64()),
                    "partition": pa.array([1, 1], pa.int32()),
                }
            )
        )
    frame = read(spark, url, topic)
    assert tuple(frame.columns) == READ_COLUMNS
    full, bare = (row.asDict() for row in frame.orderBy("offset").collect())
    stamps = [row.pop("timestamp") for row in (full, bare)]
    assert stamps[0] == stamps[1]
    created = full.pop("created_at")
    assert created.astimezone(UTC) == CREATED
    assert full == {
        "key": b"k",
        "value": b"full",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "attributes": {"kind": b"sale"},
        "producer_id": "till-7",
        "message_group_id": "shop",
        "seqno": 3,
        "codec": None,
    }
    assert bare.pop("value") == b"bare"
    assert {name for name, value in bare.items() if value is not None} == {"topic", "partition", "offset"}


def test_a_range_is_read_in_as_many_tasks_as_asked_for(
    spark: SparkSession, client: Client, url: str, topic: str
) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 100))
    some = read(spark, url, topic, startingOffsets='{"0": 40}', endingOffsets="-10", columns="offset,partition")
    assert sorted((row.partition, row.offset) for row in some.collect()) == [(1, offset) for offset in range(40)]
    split = read(spark, url, topic, columns="value", minPartitions="6")
    assert split.rdd.getNumPartitions() == 6
    assert sorted((bytes(row.value) for row in split.collect()), key=int) == numbers(0, 100)


def test_times_bound_what_is_read(spark: SparkSession, client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    for value in (b"old", b"middle", b"new"):
        publish(client, topic, [value])
    stamps = [stamp.as_py() for stamp in client.read(topic).column("timestamp")]
    middle = read(spark, url, topic, startingTimestamp=stamps[1].isoformat(), endingTimestamp=stamps[2].isoformat())
    assert [bytes(row.value) for row in middle.collect()] == [b"middle"]


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    assert read(spark, url, topic).collect() == []


@pytest.mark.parametrize("setting", ["true", "false"])
def test_queries_over_one_load_do_not_narrow_each_other(
    spark: SparkSession, client: Client, url: str, topic: str, setting: str
) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 100))
    before = spark.conf.get(PUSHING)
    spark.conf.set(PUSHING, setting)
    try:
        frame = read(spark, url, topic)
        assert frame.where("partition = 0 and offset >= 45").count() == 5
        assert frame.count() == 100
        assert frame.where("offset >= 45").union(frame.where("offset < 5")).count() == 20
    finally:
        spark.conf.set(PUSHING, before or "false")


def test_the_fast_read_gives_the_rows_of_the_data_source(
    spark: SparkSession, client: Client, url: str, topic: str
) -> None:
    client.create_topic(topic, partitions=3)
    assert headrace.spark.read(spark, topic, url=url).collect() == []
    columns = {
        "value": [b"1", b"2", b"3"],
        "key": pa.array([b"a", None, b"b"], pa.binary()),
        "attributes": pa.array([[("k", b"v")], None, []], pa.map_(pa.string(), pa.binary())),
        "producer_id": ["p", "p", "p"],
        "seqno": [1, 2, 3],
    }
    with client.producer(topic, codec="zstd") as producer:
        producer.send_batch(pa.record_batch(columns))
    for options in ({}, {"columns": ["value", "topic", "offset"]}, {"minPartitions": 5, "decode": False}):
        given = {name: option_text(value) for name, value in options.items()}
        frame = headrace.spark.read(spark, [topic], url=url, **options)
        own = read(spark, url, topic, **given)
        assert frame.schema == own.schema
        assert sorted(map(str, frame.collect())) == sorted(map(str, own.collect()))
    with pytest.raises(InvalidInput, match="metadata"):
        headrace.spark.read(spark, url=url, metadata="topics")


def test_a_topic_is_a_table_of_sparks_catalog(spark: SparkSession, client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 3))
    name = topic.replace("-", "_")
    spark.sql(f"CREATE TABLE {name} USING headrace OPTIONS (url '{url}', topic '{topic}', columns 'offset,value')")
    try:
        assert [row.value for row in spark.sql(f"SELECT value FROM {name} ORDER BY offset").collect()] == numbers(0, 3)
        assert spark.table(name).columns == ["offset", "value"]
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_a_table_of_sparks_catalog_is_written_with_the_options_of_the_sink(
    spark: SparkSession, client: Client, url: str, topic: str, tmp_path: Path
) -> None:
    """Spark passes those of the table on only at times, and those of the table that is read at others."""
    client.create_topic(topic)
    client.create_topic(f"{topic}-source")
    publish(client, f"{topic}-source", numbers(0, 2), [b"a", b"b"])
    name = topic.replace("-", "_")
    columns = "columns 'key,value'"
    spark.sql(f"CREATE TABLE {name} USING headrace OPTIONS (url '{url}', topic '{topic}', {columns})")
    spark.sql(f"CREATE TABLE {name}_source USING headrace OPTIONS (url '{url}', topic '{topic}-source', {columns})")
    copied = f"SELECT key, value FROM {name}_source"
    try:
        with pytest.raises(PySparkException, match="INSERT INTO … WITH"):
            spark.sql(f"INSERT INTO {name} {copied}")
        spark.sql(f"INSERT INTO {name} WITH (url = '{url}', topic = '{topic}') {copied}")
        spark.sql(copied).writeTo(name).options(url=url, topic=topic).append()
        stream = (
            read_stream(spark, url, f"{topic}-source", startingOffsets="earliest").select("key", "value").writeStream
        )
        stream = stream.options(url=url, topic=topic, checkpointLocation=str(tmp_path)).trigger(availableNow=True)
        PatientQuery(lambda: stream.toTable(name)).finish(PATIENCE_SECONDS)
        assert sorted(values_of(client, topic)) == sorted(numbers(0, 2) * 3)
        assert len(values_of(client, f"{topic}-source")) == 2
    finally:
        spark.sql(f"DROP TABLE {name}")
        spark.sql(f"DROP TABLE {name}_source")


def test_several_topics_are_one_frame(spark: SparkSession, client: Client, url: str, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    for number, name in enumerate(names):
        client.create_topic(name, partitions=2)
        publish(client, name, numbers(0, number + 1))
    counted = read(spark, url, ",".join(names)).groupBy("topic").count().collect()
    assert sorted((row.topic, row["count"]) for row in counted) == [(name, at + 1) for at, name in enumerate(names)]
    reader = spark.read.format("headrace").options(url=url, topicPattern=f"{topic}-[12]")
    assert reader.load().count() == 5
    assert reader.option("metadata", "topics").load().count() == 2


def test_rows_of_every_column_are_written(spark: SparkSession, client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    row: dict[str, Any] = {
        "VALUE": "text",
        "key": "k",
        "attributes": {"kind": "sale"},
        "partition": 1,
        "producer_id": "till-7",
        "message_group_id": "shop",
        "seqno": 3,
        "created_at": CREATED,
    }
    schema = (
        "VALUE string, key string, attributes map<string,string>, partition int, producer_id string, "
        "message_group_id string, seqno bigint, created_at timestamp"
    )
    frame = spark.createDataFrame([row], schema)
    for _ in range(2):
        # The source and its seqno say that this is the same message.
        frame.write.format("headrace").options(url=url, topic=topic).mode("append").save()
    (written,) = client.read(topic, 1).to_pylist()
    assert (written["value"], written["key"], written["attributes"]) == (b"text", b"k", [("kind", b"sale")])
    assert (written["producer_id"], written["message_group_id"], written["seqno"]) == ("till-7", "shop", 3)
    assert written["created_at"] == CREATED


def test_a_batch_is_written_once_and_to_the_topics_that_rows_name(
    spark: SparkSession, client: Client, url: str, topic: str
) -> None:
    frame = spark.range(100).selectExpr(
        "cast(id as string) as value", f"if(id % 2 = 0, '{topic}', '{topic.upper()}') as topic"
    )
    writing = frame.write.format("headrace").mode("append").options(url=url, createTopic="true", partitions="2")
    for _ in range(2):
        writing.options(sinkId="nightly", batchId="1").save()
    assert sorted(values_of(client, topic), key=int) == numbers(0, 100)


def test_metadata_are_tables(spark: SparkSession, client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2, key_hash="murmur2")
    publish(client, topic, numbers(0, 10))
    client.register_group(topic, "billing", important=True)
    client.commit_offsets(topic, "billing", {0: 3})

    def table(kind: str) -> list[dict[str, Any]]:
        loaded = spark.read.format("headrace").options(url=url, metadata=kind).load()
        return [row.asDict() for row in loaded.where(col("topic") == topic).collect()]

    (described,) = table("topics")
    assert (described["partitions"], described["messages"], described["groups"]) == (2, 10, 1)
    assert {row["key_hash"] for kind in ("topics", "partitions") for row in table(kind)} == {"murmur2"}
    assert [(row["partition"], row["start_offset"], row["end_offset"]) for row in table("partitions")] == [
        (0, 0, 5),
        (1, 0, 5),
    ]
    groups = table("groups")
    assert [(row["group"], row["partition"], row["committed"], row["lag_messages"]) for row in groups] == [
        ("billing", 0, 3, 2),
        ("billing", 1, None, 5),
    ]
    assert all(row["important"] for row in groups)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOfsets": "earliest"}, "similar options are startingOffsets"),
        ({"topic": "no-such-topic"}, "topic 'no-such-topic' does not exist"),
        ({"startingOffsets": '{"9": 1}'}, "the topic has partitions 0 to 0"),
    ],
)
def test_errors_reach_the_user(
    spark: SparkSession, client: Client, url: str, topic: str, options: dict[str, str], said: str
) -> None:
    client.create_topic(topic)
    with pytest.raises(PySparkException) as failed:
        spark.read.format("headrace").options(**{"url": url, "topic": topic, **options}).load().collect()
    assert said in str(failed.value)

"""The functions of Headrace in Spark: the same numbers as in the broker."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.client import Client
from headrace.core.errors import InvalidInput
from headrace.core.hashes.columns import fnv1a64_of, partition_of
from headrace.core.hashes.murmur2 import murmur2_of
from headrace.spark.functions import fnv1a64, murmur2, partition_array, partition_for
from headrace.spark.pipeline.frame.steps import register_functions
from tests.spark.topics import numbers, publish, read

TEXTS = ["", "a", "user-1", "ß" * 300, None]


def test_hashes_and_partitions_are_those_of_the_broker(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in TEXTS], "text string").selectExpr(
        "text", "cast(text as binary) as bytes"
    )
    columns = [fnv1a64("text"), fnv1a64(frame.bytes), partition_for("text", 7), partition_for(frame.bytes, 7)]
    found = {row[0]: tuple(row)[1:] for row in frame.select("text", *columns).collect()}
    for text in TEXTS:
        if text is None:
            assert found[text] == (None, None, None, None)
        else:
            data = text.encode()
            signed = (fnv1a64_of(data) + (1 << 63)) % (1 << 64) - (1 << 63)
            chosen = partition_of(data, 7) if data else None
            assert found[text] == (signed, signed, chosen, chosen)


def test_partitions_are_those_of_a_topic_of_kafka(spark: SparkSession, client: Client, url: str, topic: str) -> None:
    """The broker chose them by murmur2, as Kafka's clients do."""
    client.create_topic(topic, partitions=7, key_hash="murmur2")
    keys: list[bytes | None] = [*(text.encode() for text in TEXTS if text), *(b"k%d" % n for n in range(300))]
    publish(client, topic, numbers(0, len(keys)), keys)
    register_functions(spark)
    described = client.describe_topic(topic)
    chosen = partition_for("key", described.partitions, described.settings.key_hash)
    read_back = read(spark, url, topic).withColumn("chosen", chosen).withColumn("hash", murmur2("key"))
    read_back.createOrReplaceTempView("messages_of_kafka")
    rows = spark.sql("SELECT *, partition_for(key, 7, 'murmur2') AS in_sql FROM messages_of_kafka").collect()
    assert len(rows) == len(keys)
    for row in rows:
        assert (row["chosen"], row["in_sql"]) == (row["partition"], row["partition"])
        assert row["hash"] % (1 << 32) == murmur2_of(bytes(row["key"]))


def test_hashes_of_several_topics_at_once() -> None:
    keys = pa.array([b"a", b"", None, b"b", b"c"])
    kinds = pa.array(["murmur2", "murmur2", "fnv1a", "fnv1a", "murmur2"])
    chosen = partition_array(keys, pa.array([7, 7, 7, 5, 3], pa.int32()), kinds).to_pylist()
    murmurs = [murmur2_of(key) & 0x7FFFFFFF for key in (b"a", b"c")]
    assert chosen == [murmurs[0] % 7, None, None, partition_of(b"b", 5), murmurs[1] % 3]
    with pytest.raises(InvalidInput, match="fnv1a, murmur2"):
        partition_array(keys, pa.array([7] * 5, pa.int32()), pa.array([None] * 5, pa.string()))


def test_a_hash_that_no_topic_has_is_refused() -> None:
    with pytest.raises(InvalidInput, match="key_hash is 'crc32'"):
        partition_for("key", 8, "crc32")  # type: ignore[arg-type]


@pytest.mark.parametrize("partitions", [0, -1, 10_001, True, "8"])
def test_a_number_of_partitions_that_no_topic_has_is_refused(partitions: object) -> None:
    with pytest.raises(InvalidInput):
        partition_for("key", partitions)  # type: ignore[arg-type]

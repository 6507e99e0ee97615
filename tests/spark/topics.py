"""What tests of the data source do to topics, beside Spark."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import headrace.spark
from headrace.client import Client

PATIENCE_SECONDS = 240.0


def publish(client: Client, topic: str, values: list[bytes], keys: list[bytes | None] | None = None) -> None:
    columns = {"value": pa.array(values, pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    with client.producer(topic) as producer:
        producer.send_batch(pa.record_batch(columns))


def numbers(start: int, end: int) -> list[bytes]:
    """Values that are easily told apart."""
    return [b"%d" % number for number in range(start, end)]


def values_of(client: Client, topic: str) -> list[bytes]:
    """All values of a topic, partition after partition."""
    return [
        value
        for partition, (start, end) in sorted(client.offsets(topic).items())
        for batch in client.scan(topic, partition, start, end, columns=["value"])
        for value in batch.column("value").to_pylist()
    ]


def contents_of(client: Client, topic: str) -> dict[int, list[tuple[bytes | None, bytes]]]:
    """Keys and values of each partition in order."""
    return {
        partition: [
            pair
            for batch in client.scan(topic, partition, start, end, columns=["key", "value"])
            for pair in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
        ]
        for partition, (start, end) in client.offsets(topic).items()
    }


def read(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    return spark.read.format("headrace").options(url=url, topic=topic, **options).load()


def read_stream(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    return spark.readStream.format("headrace").options(url=url, topic=topic, **options).load()


def read_fast(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    return headrace.spark.read_stream(spark, topic, url=url, **options)


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"still not so: {what}"
        time.sleep(0.02)

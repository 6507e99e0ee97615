"""Batches: a topic read as a DataFrame, and a DataFrame written to a topic."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.client import Client


def read(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    return spark.read.format("headrace").options(url=url, topic=topic, **options).load()


def publish(client: Client, topic: str, batch: pa.RecordBatch) -> None:
    with client.producer(topic) as producer:
        producer.send_batch(batch)


def test_everything_that_was_published_is_read(spark: SparkSession, client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, pa.record_batch({"value": pa.array([b"%d" % n for n in range(10)])}))
    rows = read(spark, url, topic).orderBy("value").collect()
    assert [bytes(row.value) for row in rows] == [b"%d" % n for n in range(10)]
    assert {row.topic for row in rows} == {topic}


def test_rows_are_written(spark: SparkSession, client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    frame = spark.range(100).selectExpr("cast(id as string) as value", "cast(id % 7 as string) as key")
    frame.write.format("headrace").options(url=url, topic=topic).mode("append").save()
    assert sum(end for _, end in client.offsets(topic).values()) == 100
    assert read(spark, url, topic).count() == 100

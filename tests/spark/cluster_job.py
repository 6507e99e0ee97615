"""The job that tests/spark/test_cluster.py submits: batches and streams of a topic, with only Headrace and Spark.

    cluster_job.py URL CHECKPOINTS

Its last line is what it saw, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import headrace
import headrace.spark


def places(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where a task finds Headrace."""
    for _ in batches:
        yield pa.record_batch({"place": pa.array([headrace.__file__])})


def main(url: str, checkpoints: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    messages = spark.read.format("headrace").option("url", url).option("topic", "source").load()
    seen = {
        "driver": headrace.__file__,
        "tasks": [row.place for row in spark.range(0, 8, 1, 8).mapInArrow(places, "place string").distinct().collect()],
        "data source": messages.count(),
        "read": headrace.spark.read(spark, "source", url=url).count(),
    }
    messages.select("key", "value").write.format("headrace").options(url=url, topic="batch").mode("append").save()
    options = {"url": url, "startingOffsets": "earliest", "maxMessagesPerTrigger": "100", "minPartitions": "2"}
    streams = {
        "stream": spark.readStream.format("headrace").options(topic="source", **options).load(),
        "read_stream": headrace.spark.read_stream(spark, "source", **options),
    }
    for name, stream in streams.items():
        writing = stream.select("key", "value").writeStream.format("headrace").options(url=url, topic=name)
        writing = writing.option("checkpointLocation", f"{checkpoints}/{name}")
        writing.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])

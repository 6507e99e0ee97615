"""Spark's own Kafka sink and source, as a batch and as a stream: `python spark_job.py BOOTSTRAP JARS DIRECTORY`.

Runs in the environment of `make test-kafka-tools`, which has Spark and nothing else. Prints what it read, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

COUNT = 10_000


def main(bootstrap: str, jars: str, directory: str) -> None:
    """Write a batch, read it, then read and write it as streams."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    options = {"kafka.bootstrap.servers": bootstrap}
    numbers = spark.range(COUNT).selectExpr(
        "cast(id % 7 as string) as key",
        "cast(id as string) as value",
        "array(named_struct('key', 'kind', 'value', cast('number' as binary))) as headers",
    )
    numbers.write.format("kafka").options(**options, topic="spark-numbers", includeHeaders="true").save()
    everything = spark.read.format("kafka").options(**options, subscribe="spark-numbers", includeHeaders="true").load()
    row = everything.selectExpr(
        "count(*)", "count(distinct value)", "sum(cast(string(value) as int))", "min(size(headers))"
    ).first()
    # As much at once as the stream may take: several micro-batches.
    stream = (
        spark.readStream.format("kafka")
        .options(**options, subscribe="spark-numbers", startingOffsets="earliest", maxOffsetsPerTrigger=COUNT // 4)
        .load()
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("kafka")
        .options(**options, topic="spark-copies", checkpointLocation=f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copies = spark.read.format("kafka").options(**options, subscribe="spark-copies").load()
    print(
        json.dumps(
            {
                "read": list(row or ()),
                "copied": [copies.count(), copies.select("value").distinct().count()],
                "batches": len(query.recentProgress),
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

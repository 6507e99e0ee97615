"""Spark's Kafka connector, read round by round: `python kafka_connector.py JARS SERVERS TOPIC LOCAL_DIRECTORY`.

It runs with the Spark that the connector belongs to, in an environment of its own, so it imports nothing of Headrace.
Each line of its input makes it read the whole topic once; it answers with the rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
JARS = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")


def main(jars: str, servers: str, topic: str, local_directory: str) -> None:
    """Answer every line of the input."""
    chosen = [str(jar) for jar in Path(jars).glob("*.jar") if jar.name.startswith(JARS)]
    builder = SparkSession.builder.master("local[2]").appName("kafka connector")
    settings = {
        "spark.jars": ",".join(chosen),
        "spark.driver.memory": "4g",
        "spark.local.dir": local_directory,
        "spark.ui.enabled": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    print(spark.read.format("kafka").options(**options).load().count(), flush=True)
    for _ in sys.stdin:
        rows = spark.read.format("kafka").options(**options).load().select(*COLUMNS)
        rows.write.format("noop").mode("overwrite").save()
        print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

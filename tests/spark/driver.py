"""A Spark driver in a process of its own, on a cluster of two executors: `python -m tests.spark.driver DIRECTORY`.

Each line of its input is a query as JSON; it is answered by one line of JSON once the query has ended. The rows of
every batch are put in another order each time they are read, as after a shuffle.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.spark.session import session
from tests.spark.scenarios import FaultySource
from tests.spark.sessions import QUICK_JAVA

ROOT = Path(__file__).parents[2]


def cluster_session(directory: str) -> SparkSession:
    """Two executors in processes of their own."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    configuration = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.executorEnv.PYTHONPATH": path,
        "spark.local.dir": f"{directory}/local",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        # An executor that is killed on purpose is no reason to give up.
        "spark.deploy.maxExecutorRetries": "-1",
    }
    return session("local-cluster[2,1,1024]", "headrace scenarios", configuration)


def shuffled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in any order."""
    for batch in batches:
        yield batch.take(pa.array(np.random.default_rng().permutation(batch.num_rows)))


def run(spark: SparkSession, query: dict[str, Any]) -> None:
    """Copy a topic to another until its end, two partitions at a time."""
    source = (
        spark.readStream.format("headrace")
        .options(url=query["url"], topic=query["source"], startingOffsets="earliest")
        .options(maxMessagesPerTrigger="100", minPartitions="2")
        .load()
        .select("key", "value")
        .mapInArrow(shuffled, "key binary, value binary")
    )
    writing = source.writeStream.format("headrace_faulty").options(
        url=query["url"],
        topic=query["sink"],
        fault=query["fault"],
        directory=query["directory"],
        checkpointLocation=query["checkpoint"],
    )
    writing.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    spark = cluster_session(sys.argv[1])
    spark.dataSource.register(FaultySource)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            run(spark, json.loads(line))
            print(json.dumps({"error": None}), flush=True)
        except Exception as error:
            print(json.dumps({"error": str(error)[:2000]}), flush=True)


if __name__ == "__main__":
    main()

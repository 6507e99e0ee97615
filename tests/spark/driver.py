"""A Spark driver in a process of its own: `python -m tests.spark.driver MASTER DIRECTORY`.

Each line of its input is a query as JSON, which begins at once; it is answered by a line of JSON when it has ended. The
rows of every batch are put in another order each time they are read, as after a shuffle. A query that is read by a
`pipeline` is that of `tests.spark.faulty_pipeline`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import headrace.spark
from headrace.spark.session import session
from tests.java import QUICK_JAVA
from tests.spark.faulty_pipeline import run_pipeline
from tests.spark.scenarios import FaultySource
from tests.spark.starting import STARTS_MAX, is_slow_start

ROOT = Path(__file__).parents[2]
# Two executors in processes of their own, of one core and 1024 MB each.
CLUSTER = "local-cluster[2,1,1024]"


def cluster_session(master: str, directory: str) -> SparkSession:
    """A session on a master such as `CLUSTER`."""
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
    return session(master, "headrace scenarios", configuration)


def shuffled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in any order."""
    for batch in batches:
        yield batch.take(pa.array(np.random.default_rng().permutation(batch.num_rows)))


def routed(sinks: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each row to one of some topics by chance: another one whenever it is read again."""
    for batch in shuffled(batches):
        route = pa.array(np.random.default_rng().choice(sinks, batch.num_rows), pa.string())
        yield batch.append_column("topic", route)


def begin(spark: SparkSession, query: dict[str, Any]) -> StreamingQuery:
    """Begin to copy a topic to another, or to several by chance, up to its end or, if the query says so, for ever."""
    options = {"url": query["url"], "startingOffsets": "earliest", "maxMessagesPerTrigger": "100", "minPartitions": "2"}
    if query.get("reading") == "read_stream":
        messages = headrace.spark.read_stream(spark, query["source"], **options)
    else:
        messages = spark.readStream.format("headrace").options(topic=query["source"], **options).load()
    columns, sinks = "key binary, value binary", query["sink"].split()
    if len(sinks) > 1:
        source = messages.select("key", "value").mapInArrow(partial(routed, sinks), f"{columns}, topic string")
    else:
        source = messages.select("key", "value").mapInArrow(shuffled, columns)
    writing = source.writeStream.format("headrace_faulty").options(
        url=query["url"],
        **({"topic": sinks[0]} if len(sinks) == 1 else {}),
        fault=query["fault"],
        directory=query["directory"],
        checkpointLocation=query["checkpoint"],
    )
    return writing.start() if query.get("forever") else writing.trigger(availableNow=True).start()


@dataclass(frozen=True)
class Asked:
    """A query that is to begin, and how often it has."""

    query: dict[str, Any]
    starts: int = 0


def ask(asked: Queue[Asked | None]) -> None:
    """The top of a thread: take queries in; none more at the end of the input."""
    for line in sys.stdin:
        asked.put(Asked(json.loads(line)))
    asked.put(None)


def answer(begun: Asked, wait: Callable[[], object], asked: Queue[Asked | None]) -> None:
    """The top of a thread: wait for the end of a query, and say how it ended, or ask for another start."""
    try:
        wait()
        error = None
    except Exception as raised:
        if is_slow_start(raised) and begun.starts < STARTS_MAX:
            asked.put(begun)
            return
        error = str(raised)[:2000]
    sys.stdout.write(json.dumps({"sink": begun.query["sink"], "error": error}) + "\n")
    sys.stdout.flush()


def main(master: str, directory: str) -> None:
    spark = cluster_session(master, directory)
    spark.dataSource.register(FaultySource)
    print(json.dumps({"ready": True}), flush=True)
    asked: Queue[Asked | None] = Queue()
    threading.Thread(target=ask, args=(asked,), daemon=True).start()
    while (one := asked.get()) is not None:
        # Begun here, since Spark finds a registered sink only in the thread that has the session.
        begun = Asked(one.query, one.starts + 1)
        is_pipeline = begun.query.get("reading") == "pipeline"
        wait = partial(run_pipeline, spark, begun.query) if is_pipeline else begin(spark, begun.query).awaitTermination
        threading.Thread(target=answer, args=(begun, wait, asked), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])

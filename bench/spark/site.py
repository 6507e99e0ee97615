"""What the Spark benchmarks stand on: a broker that counts its calls, a session, and memory of Spark's workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

import headrace.spark
from headrace.broker import Broker
from headrace.protocols.flight.server import FlightServer
from headrace.spark.session import session

VALUE_BYTES = 100
KEYS = 100_000


class CountingServer(FlightServer):
    """A server that counts what it is asked."""

    calls = 0

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """Count an operation, and do it."""
        self.calls += 1
        return super().do_action(context, action)


class Site:
    """Spark beside a broker on disk."""

    def __init__(self, root: Path, spark: SparkSession, broker: Broker, server: CountingServer) -> None:
        self.root = root
        self.spark = spark
        self.broker = broker
        self.server = server
        self.url = f"headrace://127.0.0.1:{server.port}"

    def rows(self, count: int) -> DataFrame:
        """Rows with keys and values of 100 bytes, made once and kept in memory."""
        made = self.spark.range(count, numPartitions=4).selectExpr(
            f"concat('user-', cast(id * 7919 % {KEYS} as string)) as key",
            f"lpad(cast(id as string), {VALUE_BYTES}, 'x') as value",
        )
        kept = made.select(col("key").cast("binary"), col("value").cast("binary")).cache()
        kept.count()
        return kept

    def topic(self, name: str, partitions: int = 8) -> str:
        """A topic that is empty."""
        if name in self.broker.list_topics():
            self.broker.delete_topic(name)
        self.broker.create_topic(name, partitions=partitions)
        return name

    def read(self, topic: str, **options: str) -> DataFrame:
        """A topic as it is."""
        return self.spark.read.format("headrace").options(url=self.url, topic=topic, **options).load()

    def read_fast(self, topic: str, **options: str) -> DataFrame:
        """A topic as it is, by `headrace.spark.read`."""
        return headrace.spark.read(self.spark, topic, url=self.url, **options)

    def read_stream(self, topic: str, **options: str) -> DataFrame:
        """A topic as it comes, from its beginning."""
        given = {"url": self.url, "topic": topic, "startingOffsets": "earliest", **options}
        return self.spark.readStream.format("headrace").options(**given).load()

    def read_stream_fast(self, topic: str, **options: str) -> DataFrame:
        """A topic as it comes, from its beginning, by `headrace.spark.read_stream`."""
        return headrace.spark.read_stream(self.spark, topic, url=self.url, startingOffsets="earliest", **options)

    def write(self, rows: DataFrame, topic: str, **options: str) -> None:
        """Publish rows."""
        rows.write.format("headrace").options(url=self.url, topic=topic, **options).mode("append").save()


@contextmanager
def open_site(root: Path) -> Iterator[Site]:
    """A site on a new store."""
    configuration = {
        "spark.driver.memory": "6g",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(root / "local"),
        "spark.sql.warehouse.dir": str(root / "warehouse"),
    }
    spark = session("local[2]", "headrace bench", configuration)
    with Broker.open(f"file:{root / 'store'}") as broker:
        server = CountingServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
        try:
            yield Site(root, spark, broker, server)
        finally:
            server.stop()
            spark.stop()


def to_nowhere(rows: DataFrame) -> None:
    """Make Spark produce every row and drop it."""
    rows.write.format("noop").mode("overwrite").save()


@contextmanager
def watching_workers() -> Iterator[Callable[[], float]]:
    """The most memory, in MB, that any Python worker of Spark held as its own while watched."""
    over, most = threading.Event(), [0.0]

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max([most[0], *(_anonymous_mb(pid) for pid in _workers())])

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: most[0]
    finally:
        over.set()
        watcher.join()


def _workers() -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if b"pyspark.daemon" in command and b"pyspark.worker" in command:
                found.append(int(process.name))
    return found


def _anonymous_mb(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1000
    except OSError:
        pass
    return 0.0

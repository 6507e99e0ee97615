"""Ten days of an archived topic: a count over one hour beside scans of all, `python -m bench.tables [--quick]`."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headrace.spark
from bench.report import Report
from bench.spark.site import to_nowhere
from headrace.broker import Broker
from headrace.broker.clock import SystemClock
from headrace.broker.settings import ArchiveSettings
from headrace.client import Client, connect
from headrace.core.limits import MICROSECONDS
from headrace.protocols.flight.server import FlightServer
from headrace.spark.session import session
from headrace.tables.sql import run_sql

HOURS = 240
PARTITIONS = 4
VALUE_BYTES = 100
TOPIC = "ten_days"
# The first one does not count.
ROUNDS = 4
_NEVER_SECONDS = 1e6


class PastClock(SystemClock):
    """A clock that starts ten days ago and is moved hour by hour."""

    behind_us = HOURS * 3600 * MICROSECONDS

    def now_us(self) -> int:
        """The time of day, some days ago."""
        return super().now_us() - self.behind_us

    def step(self) -> None:
        """An hour passes."""
        self.behind_us -= 3600 * MICROSECONDS


def processor_seconds() -> float:
    """What this process and those it started, Spark's Java among them, have used of the processors."""
    parents, used = {}, {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                fields = (process / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            parents[int(process.name)] = int(fields[1])
            used[int(process.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used[pid] for pid in ours)


def least_processor_seconds(*actions: Callable[[], object]) -> list[float]:
    """The least that each action used of the processors, all done in turn: it depends less on a busy machine."""
    seconds: list[list[float]] = [[] for _ in actions]
    for _ in range(ROUNDS):
        for action, taken in zip(actions, seconds, strict=True):
            began = processor_seconds()
            action()
            taken.append(processor_seconds() - began)
    return [min(taken[1:]) for taken in seconds]


def fill(broker: Broker, client: Client, clock: PastClock, hourly: int) -> None:
    """Publish ten days and archive each; the last hour stays in the log."""
    client.create_topic(TOPIC, partitions=PARTITIONS, archive="on", archive_after_seconds=3600)
    numbers = np.arange(hourly)
    keys = pa.array([f"user-{number * 7919 % 100_000}".encode() for number in numbers.tolist()])
    letters = np.random.default_rng(7).integers(97, 123, (hourly, VALUE_BYTES), np.uint8)
    values = pa.array([row.tobytes() for row in letters])
    batch = pa.record_batch({"key": keys, "value": values})
    with client.producer(TOPIC) as producer:
        for hour in range(HOURS):
            producer.send_batch(batch)
            if hour < HOURS - 1:
                clock.step()
            if hour % 24 == 22:
                broker.archiving.archive()


def in_spark(report: Report, spark: SparkSession, url: str, hour: str, count: int, hourly: int) -> None:
    """A count over one hour beside scans of the table, and beside the broker."""
    table = headrace.spark.table(spark, TOPIC, url=url)
    plain = spark.newSession()
    plain.conf.set("spark.sql.parquet.filterPushdown", "false")
    unfiltered = headrace.spark.table(plain, TOPIC, url=url)
    assert table.where(hour).count() == hourly and table.count() == count
    one, same, scan, broker = least_processor_seconds(
        lambda: headrace.spark.table(spark, TOPIC, url=url).where(hour).count(),
        lambda: unfiltered.where(hour).count(),
        lambda: to_nowhere(table),
        lambda: to_nowhere(headrace.spark.read(spark, TOPIC, url=url)),
    )
    report.line("Spark: processor time of a count of one hour, with planning", one * 1e3, "ms")
    report.line("  the same without statistics", same * 1e3, "ms")
    report.line("  a scan of all columns", scan * 1e3, "ms")
    report.line("  a scan of all columns from the broker", broker * 1e3, "ms")
    report.line("  full scan's of the count's", scan / one, "times", least=5.0)


def in_duckdb(report: Report, client: Client, hour: str, hourly: int) -> None:
    """The same in DuckDB."""
    every = (
        f"SELECT count(*), sum(octet_length(value)), max(key), max(partition), max(timestamp), max(seqno) FROM {TOPIC}"
    )
    counted = run_sql(client, f"SELECT count(*) AS n FROM {TOPIC} WHERE {hour}").to_pylist()
    assert counted == [{"n": hourly}]
    one, scan = least_processor_seconds(
        lambda: run_sql(client, f"SELECT count(*) FROM {TOPIC} WHERE {hour}"), lambda: run_sql(client, every)
    )
    report.line("DuckDB: processor time of a count of one hour, with planning", one * 1e3, "ms")
    report.line("  a scan of six columns", scan * 1e3, "ms")
    report.line("  full scan's of the count's", scan / one, "times", least=5.0)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: to see that it runs")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    arguments = parser.parse_args()
    hourly = 2_000 if arguments.quick else 20_000
    count = HOURS * hourly
    report = Report(f"bench-tables: {count:,} messages of 100-byte values over ten days, local[2], warm")
    report.begin()
    # The clock of this store jumps, and it says so.
    logging.getLogger("headrace.broker").setLevel(logging.ERROR)
    clock = PastClock()
    with TemporaryDirectory(dir=arguments.directory, prefix="bench-") as directory:
        settings = ArchiveSettings(
            url=f"{directory}/archive", check_seconds=_NEVER_SECONDS, sweep_seconds=_NEVER_SECONDS
        )
        with Broker.open(f"file:{directory}/store", clock=clock, archive=settings) as broker:
            server = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
            url = f"headrace://127.0.0.1:{server.port}"
            with connect(url) as client:
                start = datetime.fromtimestamp(clock.now_us() / 1e6, UTC) + timedelta(hours=100, minutes=-30)
                fill(broker, client, clock, hourly)
                found = client.archive(TOPIC)
                size = sum(file.bytes for file in found.files)
                report.note(f"{len(found.files)} files, {size / 1e6:,.0f} MB, {sum(found.complete.values()):,} rows")
                end = start + timedelta(hours=1)
                hour = f"timestamp >= TIMESTAMP '{start:%F %T}+00:00' AND timestamp < TIMESTAMP '{end:%F %T}+00:00'"
                in_duckdb(report, client, hour.replace("TIMESTAMP '", "TIMESTAMPTZ '"), hourly)
                spark = session("local[2]", "headrace bench", {"spark.driver.memory": "4g"})
                in_spark(report, spark, url, hour, count, hourly)
                spark.stop()
            server.stop()
    report.end()


if __name__ == "__main__":
    main()

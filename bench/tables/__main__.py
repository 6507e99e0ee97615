"""Ten days of an archived topic: a count over one hour beside scans of all, `python -m bench.tables [--quick]`."""

from __future__ import annotations

import argparse
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headrace.spark
from bench.report import Report
from bench.rounds import best_costs
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
ROUNDS = 3
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


def in_spark(report: Report, spark: SparkSession, url: str, start: datetime, count: int, hourly: int) -> None:
    """A count over one hour beside scans of the table, and beside the broker."""
    table = headrace.spark.table(spark, TOPIC, url=url)
    plain = spark.newSession()
    plain.conf.set("spark.sql.parquet.filterPushdown", "false")
    unfiltered = headrace.spark.table(plain, TOPIC, url=url)
    hour, end = condition(start, "TIMESTAMP"), start + timedelta(hours=1)
    named = {"startingTimestamp": start.isoformat(), "endingTimestamp": end.isoformat()}
    assert table.where(hour).count() == hourly and table.count() == count
    assert headrace.spark.table(spark, TOPIC, url=url, **named).count() == hourly
    nothing, one, by_options, same, scan, broker = best_costs(
        lambda: headrace.spark.table(spark, TOPIC, url=url).where("timestamp < TIMESTAMP '1971-01-01'").count(),
        lambda: headrace.spark.table(spark, TOPIC, url=url).where(hour).count(),
        lambda: headrace.spark.table(spark, TOPIC, url=url, **named).count(),
        lambda: unfiltered.where(hour).count(),
        lambda: to_nowhere(table),
        lambda: to_nowhere(headrace.spark.read(spark, TOPIC, url=url)),
        rounds=ROUNDS,
    )
    report.line("Spark: processor time of a count of one hour, with planning", one.processor_seconds * 1e3, "ms")
    report.line("  of which a count of no rows at all takes", nothing.processor_seconds * 1e3, "ms")
    report.line("  the same by startingTimestamp and endingTimestamp", by_options.processor_seconds * 1e3, "ms")
    report.line("  the same without statistics", same.processor_seconds * 1e3, "ms")
    report.line("  a scan of all columns", scan.processor_seconds * 1e3, "ms")
    report.line("  a scan of all columns from the broker", broker.processor_seconds * 1e3, "ms")
    report.line("  full scan's of the count's", scan.processor_seconds / one.processor_seconds, "times", least=5.0)
    report.line("    by the clock", scan.seconds / one.seconds, "times", least=5.0)
    report.line(
        "  full scan's of the count's by the options", scan.processor_seconds / by_options.processor_seconds, "times"
    )


def condition(start: datetime, kind: str) -> str:
    """The hour from a time on, in SQL."""
    end = start + timedelta(hours=1)
    return f"timestamp >= {kind} '{start:%F %T}+00:00' AND timestamp < {kind} '{end:%F %T}+00:00'"


def in_duckdb(report: Report, client: Client, start: datetime, hourly: int) -> None:
    """The same in DuckDB."""
    hour = condition(start, "TIMESTAMPTZ")
    every = (
        f"SELECT count(*), sum(octet_length(value)), max(key), max(partition), max(timestamp), max(seqno) FROM {TOPIC}"
    )
    counted = run_sql(client, f"SELECT count(*) AS n FROM {TOPIC} WHERE {hour}").to_pylist()
    assert counted == [{"n": hourly}]
    one, scan = best_costs(
        lambda: run_sql(client, f"SELECT count(*) FROM {TOPIC} WHERE {hour}"),
        lambda: run_sql(client, every),
        rounds=ROUNDS,
    )
    report.line("DuckDB: processor time of a count of one hour, with planning", one.processor_seconds * 1e3, "ms")
    report.line("  a scan of six columns", scan.processor_seconds * 1e3, "ms")
    report.line("  full scan's of the count's", scan.processor_seconds / one.processor_seconds, "times", least=5.0)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: to see that it runs")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    arguments = parser.parse_args()
    hourly = 2_000 if arguments.quick else 100_000
    count = HOURS * hourly
    report = Report(f"bench-tables: {count:,} messages of 100-byte values over ten days, local[2], warm")
    report.begin()
    # The clock of this store jumps, and it says so.
    logging.getLogger("headrace.broker").setLevel(logging.ERROR)
    clock = PastClock()
    with TemporaryDirectory(dir=arguments.directory, prefix="bench-") as directory:
        settings = ArchiveSettings(url=f"{directory}/archive", check_seconds=_NEVER_SECONDS)
        with Broker.open(f"file:{directory}/store", clock=clock, archive=settings) as broker:
            server = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
            url = f"headrace://127.0.0.1:{server.port}"
            with connect(url) as client:
                start = datetime.fromtimestamp(clock.now_us() / 1e6, UTC) + timedelta(hours=100, minutes=-30)
                fill(broker, client, clock, hourly)
                found = client.archive(TOPIC)
                size = sum(file.bytes for file in found.files)
                report.note(f"{len(found.files)} files, {size / 1e6:,.0f} MB, {sum(found.complete.values()):,} rows")
                in_duckdb(report, client, start, hourly)
                spark = session("local[2]", "headrace bench", {"spark.driver.memory": "4g"})
                in_spark(report, spark, url, start, count, hourly)
                spark.stop()
            server.stop()
    report.end()


if __name__ == "__main__":
    main()

"""Run all Spark benchmarks: `python -m bench.spark [--quick] [--directory DIR]`."""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame

from bench.report import Report
from bench.rounds import best_costs, report_slowness, report_speed
from bench.spark.planning import planning
from bench.spark.site import Site, open_site, to_nowhere, watching_workers
from bench.spark.typed import typed

LITTLE = 100
IDLE_SECONDS = 10.0
PAIR = "key,value"
SCATTERED = (1, 1_000, 10_000)


def writing(report: Report, site: Site, rows: DataFrame, count: int) -> None:
    """Batch writes beside Spark's own to Parquet."""
    parquet = rows.write.option("compression", "none").mode("overwrite")

    def write(delivery: str) -> None:
        site.write(rows, site.topic("written"), delivery=delivery)

    own, exactly_once, at_least_once = best_costs(
        lambda: parquet.parquet(str(site.root / "written")),
        lambda: write("exactly-once"),
        lambda: write("at-least-once"),
    )
    report.line("write Parquet, uncompressed", count / own.seconds, "rows/s")
    report.line("write a topic, at least once", count / at_least_once.seconds, "rows/s")
    report.line("write a topic, exactly once", count / exactly_once.seconds, "rows/s")
    report_speed(report, "Parquet", exactly_once, own, least=0.4)
    report_speed(report, "at least once", exactly_once, at_least_once, least=0.75)


def reading(report: Report, site: Site, count: int) -> None:
    """Batch reads and available-now beside Spark's own of the same rows from Parquet, each read in the same way.

    An available-now query is compared with one over the Parquet files: same columns, trigger, sink and checkpoint, one
    micro-batch. What it takes beside a batch read is reported too: that has the start and end of the query in it.
    """
    spark, full = site.spark, site.read("full")
    paths = {name: str(site.root / name) for name in ("all", "pair", "snappy")}
    full.write.option("compression", "none").parquet(paths["all"])
    site.read("full", columns=PAIR).write.option("compression", "none").parquet(paths["pair"])
    full.write.option("compression", "snappy").parquet(paths["snappy"])
    batch_ms: list[float] = []
    own, own_pair, snappy, batch, pair, fast, fast_pair, own_stream, stream, fast_stream = best_costs(
        lambda: to_nowhere(spark.read.parquet(paths["all"])),
        lambda: to_nowhere(spark.read.parquet(paths["pair"])),
        lambda: to_nowhere(spark.read.parquet(paths["snappy"])),
        lambda: to_nowhere(site.read("full")),
        lambda: to_nowhere(site.read("full", columns=PAIR)),
        lambda: to_nowhere(site.read_fast("full")),
        lambda: to_nowhere(site.read_fast("full", columns=PAIR)),
        lambda: _available_now(site, spark.readStream.schema(full.schema).parquet(paths["all"])),
        lambda: _available_now(site, site.read_stream("full")),
        lambda: batch_ms.append(_available_now(site, site.read_stream_fast("full"))),
    )
    report.line("read Parquet, uncompressed", count / own.seconds, "rows/s")
    report.line("read Parquet, snappy", count / snappy.seconds, "rows/s")
    report.line("read Parquet, uncompressed, available-now", count / own_stream.seconds, "rows/s")
    for what, cost, beside, least in (
        ("read a topic", batch, own, 0.5),
        ("read a topic, columns key and value", pair, own_pair, None),
        ("headrace.spark.read", fast, own, 0.75),
        ("headrace.spark.read, columns key and value", fast_pair, own_pair, 0.75),
        ("available-now, its start included", stream, own_stream, None),
        ("headrace.spark.read_stream, available-now, its start included", fast_stream, own_stream, 0.5),
    ):
        report.line(what, count / cost.seconds, "rows/s")
        report_speed(report, "Parquet with the same columns, read in the same way", cost, beside, least=least)
    report_speed(report, "a batch read of Parquet", fast_stream, own)
    report.line("  its micro-batch alone, at best", min(batch_ms) / 1000, "s")
    report.line("  the whole query, at best", fast_stream.seconds, "s")


def scattered(report: Report, site: Site, count: int) -> None:
    """The same messages in one, in a thousand and in ten thousand partitions."""
    rows = site.rows(count)
    topics = [site.topic(f"scattered-{partitions}", partitions) for partitions in SCATTERED]
    for topic in topics:
        site.write(rows.repartition(10), topic)
    rows.unpersist()
    for what, way in (("read", site.read), ("headrace.spark.read", site.read_fast)):
        one, *many = best_costs(*(lambda topic=topic, way=way: to_nowhere(way(topic)) for topic in topics))
        report.line(f"{what}: {count:,} messages in one partition", count / one.seconds, "rows/s")
        for partitions, cost, most in zip(SCATTERED[1:], many, (1.5, 3.0), strict=True):
            report_slowness(report, f"in {partitions:,}: processor time beside that", cost, one, most)


def _available_now(site: Site, source: DataFrame) -> float:
    """Read everything in one micro-batch; the milliseconds of that, without the start and end of the query."""
    checkpoint = site.root / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    writing = source.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    (progress,) = query.recentProgress
    return float(progress.durationMs["triggerExecution"])


def memory(report: Report, site: Site, rows: DataFrame, count: int) -> None:
    """What a Python worker holds while it reads a partition, short or long."""
    for share in (10, 1):
        site.write(rows.limit(count // share), site.topic("single", 1))
        with watching_workers() as most:
            to_nowhere(site.read("single", maxMessagesPerSplit=str(count)))
        report.line(f"memory of a worker that reads {count // share:,} messages in one task", most(), "MB", most=300)


def idle(report: Report, site: Site) -> None:
    """What a query asks the broker while nothing happens, with a group."""
    site.topic("idle")
    query = site.read_stream("idle", group="idle").writeStream.format("noop")
    running = query.option("checkpointLocation", str(site.root / "idle-checkpoint")).start()
    try:
        while site.server.calls == 0 or running.lastProgress is None:
            time.sleep(0.1)
        time.sleep(1.0)
        before = site.server.calls
        time.sleep(IDLE_SECONDS)
        asked = (site.server.calls - before) / IDLE_SECONDS
    finally:
        running.stop()
    report.line("requests of an idle query", asked, "requests/s", most=5)


def little(report: Report, site: Site, batches: int) -> None:
    """The time of a micro-batch with little data, beside Spark's own rate source."""
    rate = site.spark.readStream.format("rate").option("rowsPerSecond", str(LITTLE)).load()
    own = _micro_batch_ms(site, rate, batches, available_now=False)
    site.topic("little")
    site.write(site.spark.range(LITTLE * batches).selectExpr("cast(id as string) as value"), "little")
    ours = _micro_batch_ms(
        site, site.read_stream("little", maxMessagesPerTrigger=str(LITTLE)), batches, available_now=True
    )
    report.line("micro-batch, rate source to noop", own, "ms")
    report.line("micro-batch, topic to noop", ours, "ms")
    report.line("  of the rate source", ours / own, "times", most=1.3)


def _micro_batch_ms(site: Site, source: DataFrame, batches: int, available_now: bool) -> float:
    """The median time of the micro-batches that had rows, without the first two."""
    checkpoint = site.root / "little-checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    writing = source.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = (writing.trigger(availableNow=True) if available_now else writing).start()
    if available_now:
        query.awaitTermination()
    seen: list[Any] = []
    try:
        while len(seen) < batches:
            seen = [progress for progress in query.recentProgress if progress.numInputRows > 0]
            if available_now:
                break
            time.sleep(0.2)
    finally:
        query.stop()
    return float(statistics.median(progress.durationMs["triggerExecution"] for progress in seen[2:]))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: to see that it runs")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    arguments = parser.parse_args()
    count = 500_000 if arguments.quick else 5_000_000
    report = Report(f"bench-spark: {count:,} messages of 100-byte values with keys, local[2], warm, best of five")
    report.begin()
    with TemporaryDirectory(dir=arguments.directory, prefix="bench-") as directory, open_site(Path(directory)) as site:
        rows = site.rows(count)
        memory(report, site, rows, count)
        writing(report, site, rows, count)
        site.write(rows, site.topic("full"))
        rows.unpersist()
        reading(report, site, count)
        typed(report, site, count)
        scattered(report, site, 100_000)
        planning(report, site)
        idle(report, site)
        little(report, site, 6 if arguments.quick else 12)
    report.end()


if __name__ == "__main__":
    main()

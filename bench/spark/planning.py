"""What it takes to plan a micro-batch over a thousand topics: requests, and time. Spark has no part in it."""

from __future__ import annotations

import time

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bench.report import Report
from bench.spark.site import Site
from headrace.spark.options import read_options
from headrace.spark.reader.batch_reader import row_reader
from headrace.spark.reader.splits import Split
from headrace.spark.reader.stream_reader import StreamReader

TOPICS = 1_000
ROUNDS = 5


def planning(report: Report, site: Site) -> None:
    """The calls that Spark makes for a batch, by a query that reads the topics by a pattern."""
    batch = pa.record_batch({"value": pa.array([b"x"], pa.binary())})
    for number in range(TOPICS):
        site.broker.create_topic(f"planned-{number}")
        site.broker.publish(f"planned-{number}", batch)
    options = read_options({"url": site.url, "topicPattern": "planned-.*", "startingOffsets": "earliest"})
    reader = StreamReader(options, row_reader(options)[0])
    start = reader.initialOffset()
    taken, before = [], site.server.calls
    for _ in range(ROUNDS):
        began = time.perf_counter()
        end = reader.latestOffset(start, ReadAllAvailable())
        splits = reader.partitions(start, end)
        assert sum(len(each.ranges) for each in splits if isinstance(each, Split)) == TOPICS
        taken.append(time.perf_counter() - began)
    calls = (site.server.calls - before) / ROUNDS
    report.line(f"planning a micro-batch over {TOPICS:,} topics", calls, "requests", most=12)
    report.line("  its time, at best", min(taken) * 1000, "ms")

"""Queries that report themselves to the broker through Spark's listener."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace.spark
from headrace.client import Client
from headrace.core.reports.pipelines import PipelineDescription
from headrace.spark.listener import QueryReports
from headrace.spark.reader.splits import PartitionKey
from headrace.spark.reader.stream_offsets import encode
from tests.broker.background import eventually
from tests.spark.starting import PatientQuery
from tests.spark.topics import numbers, publish, read_stream


def listed(client: Client, topic: str) -> list[PipelineDescription]:
    return [each for each in client.list_pipelines() if each.topic == topic]


@pytest.fixture
def reports(spark: SparkSession, url: str) -> Iterator[QueryReports]:
    with closing(QueryReports(url, interval_seconds=0.05)) as made:
        spark.streams.addListener(made)
        yield made
        spark.streams.removeListener(made)


def test_a_query_is_listed_from_its_first_batch_to_its_end(
    spark: SparkSession, reports: QueryReports, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 30))
    stream = read_stream(spark, url, topic, startingOffsets="earliest", maxMessagesPerTrigger="20")
    writing = stream.writeStream.format("noop").queryName(f"of {topic}")
    query = PatientQuery(lambda: writing.option("checkpointLocation", str(tmp_path)).start())
    eventually(lambda: query.goes_on() and [each.report.messages for each in listed(client, topic)] == [30])
    publish(client, topic, numbers(30, 35))
    eventually(lambda: query.goes_on() and [each.report.messages for each in listed(client, topic)] == [35])
    (found,) = listed(client, topic)
    assert (found.name, found.state, found.report.source) == (f"of {topic}", "running", f"topic {topic}")
    assert found.report.batch is not None and found.report.lag_messages == 0
    query.stop()
    eventually(lambda: [each.state for each in listed(client, topic)] == ["finished"])


def test_a_query_that_fails_says_why(
    spark: SparkSession, reports: QueryReports, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=1)
    publish(client, topic, numbers(0, 5))
    stream = headrace.spark.read_stream(spark, topic, url=url, startingOffsets="earliest")
    writing = stream.selectExpr("if(offset = 7, raise_error('seven is refused'), offset) AS offset").writeStream
    query = writing.format("noop").option("checkpointLocation", str(tmp_path)).start()
    eventually(lambda: [each.report.messages for each in listed(client, topic)] == [5])
    publish(client, topic, numbers(5, 10))
    eventually(lambda: [each.state for each in listed(client, topic)] == ["failed"])
    (found,) = listed(client, topic)
    assert "seven is refused" in (found.report.error or "") and found.name == str(query.id)


class Events:
    """Events of a query that reads one topic, made by hand."""

    def __init__(self, topic: str) -> None:
        self.id, self.run = uuid.uuid4(), uuid.uuid4()
        self._place = PartitionKey(1, topic, 0)

    def started(self) -> Any:
        return SimpleNamespace(id=self.id, runId=self.run, name=None)

    def progressed(self) -> Any:
        offsets = str(encode({self._place: 4})).replace("'", '"')
        return SimpleNamespace(
            progress=SimpleNamespace(
                runId=self.run,
                sources=[SimpleNamespace(endOffset=offsets, latestOffset=offsets)],
                sink=SimpleNamespace(description="nowhere"),
                observedMetrics={},
                numInputRows=4,
                durationMs={"triggerExecution": 10},
                batchId=0,
            )
        )

    def ended(self) -> Any:
        return SimpleNamespace(runId=self.run, exception=None)


def test_the_last_report_is_sent_before_the_driver_exits(url: str, client: Client, topic: str) -> None:
    client.create_topic(topic)
    events = Events(topic)
    with closing(QueryReports(url, interval_seconds=60.0)) as reports:
        reports.onQueryStarted(events.started())
        reports.onQueryProgress(events.progressed())
        reports.onQueryTerminated(events.ended())
    assert [(each.state, each.report.messages) for each in listed(client, topic)] == [("finished", 4)]


def test_a_refused_report_is_logged_once(
    url: str, client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic does not exist: the query goes on, and is not reported again."""
    events = Events(topic)
    with caplog.at_level(logging.DEBUG, "headrace.spark.listener"):
        with closing(QueryReports(url, interval_seconds=0.01)) as reports:
            reports.onQueryStarted(events.started())
            reports.onQueryProgress(events.progressed())
            eventually(lambda: bool(caplog.records))
            reports.onQueryProgress(events.progressed())
        assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "it will not be in the list of pipelines" in caplog.text and topic in caplog.text


def test_queries_of_other_sources_and_earlier_ones_are_left_out(url: str, client: Client, topic: str) -> None:
    client.create_topic(topic)
    events, other = Events(topic), Events(topic)
    with closing(QueryReports(url, interval_seconds=60.0)) as reports:
        reports.onQueryProgress(events.progressed())
        reports.onQueryTerminated(events.ended())
        reports.onQueryStarted(other.started())
        nothing = other.progressed()
        nothing.progress.sources = []
        reports.onQueryProgress(nothing)
        reports.onQueryTerminated(other.ended())
    assert listed(client, topic) == []

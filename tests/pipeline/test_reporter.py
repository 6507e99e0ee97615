"""Reports of pipelines: what a broker gets, and that one which cannot take them slows and fails nothing."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.broker import Broker
from headrace.client import Client
from headrace.core.reports.pipelines import PipelineDescription
from headrace.spark.pipeline import Pipeline, PipelineFailed, Progress, Summary
from headrace.spark.pipeline.definition.load import describe
from headrace.spark.pipeline.run import reporter as run_reporter
from headrace.spark.pipeline.run.reporter import Reporter
from tests.broker.background import eventually
from tests.pipeline.runs import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMMARY = Summary(pipeline="land", batches=2, messages=20, dead_letters=1)
PROGRESS = Progress(pipeline="land", batch=1, messages=10, rate=5.0, lag=3, batch_seconds=2.0, dead_letters=1)


def tables(url: str, topic: str, directory: Path, **more: Any) -> dict[str, Any]:
    return {
        "name": f"land {topic}",
        "server": {"url": url},
        "source": {"topic": topic},
        "sink": {"format": "parquet", "path": str(directory / "table")},
        "dead_letters": {"topic": f"{topic}-dead", "partitions": 1},
        "run": {"checkpoint": str(directory / "cp")} | more,
    }


def until_over(client: Client, topic: str) -> PipelineDescription:
    """The last report of a run, for which its end does not wait for ever."""
    eventually(lambda: [each.state for each in listed(client, topic)] not in ([], ["running"]))
    (found,) = listed(client, topic)
    return found


def listed(client: Client, topic: str) -> list[PipelineDescription]:
    return [each for each in client.list_pipelines() if each.topic == topic]


def test_a_run_is_listed_from_its_start_to_its_end(url: str, client: Client, topic: str, tmp_path: Path) -> None:
    client.create_topic(topic)
    with Reporter(describe(tables(url, topic, tmp_path), {}), interval_seconds=0.01) as reporter:
        eventually(lambda: [each.state for each in listed(client, topic)] == ["running"])
        reporter.progressed(PROGRESS)
        eventually(lambda: listed(client, topic)[0].report.batch == 1)
        (found,) = listed(client, topic)
        report = found.report
        assert (found.name, report.source, report.sink) == (
            f"land {topic}",
            f"topic {topic}",
            f"parquet {tmp_path / 'table'}",
        )
        assert (report.messages, report.messages_per_second, report.lag_messages, report.dead_letters) == (
            10,
            5.0,
            3,
            1,
        )
        assert (report.dead_letter_topic, bool(report.host), report.error) == (f"{topic}-dead", True, None)
        reporter.ended(SUMMARY, is_stopped=True)
    found = until_over(client, topic)
    assert (found.state, found.report.messages, found.report.messages_per_second) == ("stopped", 20, 0.0)


def test_a_failed_run_says_why(url: str, client: Client, topic: str, tmp_path: Path) -> None:
    client.create_topic(topic)
    with pytest.raises(PipelineFailed), Reporter(describe(tables(url, topic, tmp_path), {})):
        raise PipelineFailed("the sink\nis full", None)
    found = until_over(client, topic)
    assert (found.state, found.report.error) == ("failed", "the sink is full")


def test_a_run_may_report_nothing(url: str, client: Client, topic: str, tmp_path: Path) -> None:
    client.create_topic(topic)
    with Reporter(describe(tables(url, topic, tmp_path, report=False), {})) as reporter:
        reporter.ended(SUMMARY, is_stopped=False)
    files = {"source": {"format": "json", "path": "/x"}, "sink": {"format": "parquet", "path": "/y"}}
    with Reporter(describe(files, {})) as reporter:
        reporter.ended(SUMMARY, is_stopped=False)
    assert listed(client, topic) == []


def test_a_broker_that_refuses_reports_is_told_once(
    url: str, broker: Broker, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its topic does not exist."""
    with Reporter(describe(tables(url, topic, tmp_path), {}), interval_seconds=0.01) as reporter:
        eventually(lambda: not reporter._thread.is_alive())
        reporter.progressed(PROGRESS)
        reporter.ended(SUMMARY, is_stopped=False)
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1 and "this run will not be in the list of pipelines" in warned[0]


def test_a_broker_that_does_not_answer_holds_nothing_up(
    url: str, broker: Broker, client: Client, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic(topic)
    release = threading.Event()
    monkeypatch.setattr(run_reporter, "_LAST_SECONDS", 0.2)
    monkeypatch.setattr(broker, "report_pipeline", lambda *_: release.wait(60))
    with Reporter(describe(tables(url, topic, tmp_path), {})) as reporter:
        reporter.progressed(PROGRESS)
        reporter.ended(SUMMARY, is_stopped=False)
    assert reporter._thread.is_alive(), "the run ended before its report"
    release.set()
    reporter._thread.join(60)


def test_a_pipeline_on_spark_reports_what_it_did(
    spark: SparkSession, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    publish(client, topic, [{"id": number} for number in range(5)])
    Pipeline.of(tables(url, topic, tmp_path)).run(spark, once=True)
    found = until_over(client, topic)
    assert (found.state, found.report.messages, found.report.batch) == ("finished", 5, 0)

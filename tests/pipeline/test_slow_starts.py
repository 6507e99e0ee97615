"""Streams whose Python process was too slow to start: started again, and not for ever."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Client
from headrace.spark.pipeline import PipelineFailed
from headrace.spark.pipeline.pipeline import _STARTS_MAX
from headrace.spark.pipeline.sinks.topic_sink import TopicSinkWriter
from headrace.spark.write.fingerprint import BatchId
from tests.pipeline.runs import publish, run, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLOW = "org.apache.spark.SparkException: Python worker failed to connect back."
CAUSE = "Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back"
OTHER = "org.apache.spark.SparkException: Python worker exited unexpectedly"


class FailingWrites:
    """Writes to a topic that fail for these reasons, one after the other, and then succeed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reasons: list[str], *, after_commit: bool) -> None:
        self.batches: list[int] = []
        write = TopicSinkWriter.write

        def fail_first(writer: TopicSinkWriter, rows: DataFrame, batch: BatchId | None) -> None:
            assert batch is not None
            self.batches.append(batch.number)
            if not reasons or after_commit:
                write(writer, rows, batch)
            if reasons:
                raise RuntimeError(reasons.pop(0))

        monkeypatch.setattr(TopicSinkWriter, "write", fail_first)


@pytest.fixture
def tables(url: str, client: Client, topic: str, tmp_path: Path) -> dict[str, Any]:
    client.create_topic(topic, partitions=2)
    publish(client, topic, [{"id": number} for number in range(10)], "id")
    return {
        "server": {"url": url},
        "source": {"topic": topic, "max_messages_per_trigger": 5},
        "sink": {"topic": f"{topic}-out", "partitions": 1},
        "run": {"checkpoint": str(tmp_path / "cp")},
    }


@pytest.mark.parametrize("after_commit", [False, True])
def test_a_slow_start_is_tried_again_and_every_row_is_written_once(
    spark: SparkSession,
    client: Client,
    topic: str,
    tables: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    after_commit: bool,
) -> None:
    writes = FailingWrites(monkeypatch, [SLOW, f"{SLOW}\n{CAUSE}"], after_commit=after_commit)
    summary = run(spark, tables)
    assert writes.batches == [0, 0, 0, 1], "the same batch on each start"
    assert (summary.batches, summary.messages, summary.duplicates) == (2, 10, 0)
    assert values(client, f"{topic}-out") == [{"id": number} for number in range(10)]


def test_not_for_ever(
    spark: SparkSession, client: Client, topic: str, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = FailingWrites(monkeypatch, [SLOW] * _STARTS_MAX, after_commit=False)
    with pytest.raises(PipelineFailed, match="to connect back"):
        run(spark, tables)
    assert writes.batches == [0] * _STARTS_MAX and values(client, f"{topic}-out") == []
    # The checkpoint remains, and the next run continues from it.
    assert run(spark, tables).messages == 10
    assert values(client, f"{topic}-out") == [{"id": number} for number in range(10)]


def test_not_after_other_errors(
    spark: SparkSession, client: Client, topic: str, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = FailingWrites(monkeypatch, [OTHER], after_commit=False)
    with pytest.raises(PipelineFailed, match="exited unexpectedly"):
        run(spark, tables)
    assert writes.batches == [0] and values(client, f"{topic}-out") == []

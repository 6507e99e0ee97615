"""Streams on a real Spark: topic to topic, with limits, new partitions, groups, and from a checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.client import Client
from headrace.spark import messages_behind, messages_read
from tests.spark.starting import PatientQuery
from tests.spark.topics import PATIENCE_SECONDS, numbers, publish, read_fast, read_stream, values_of, wait_until

# A test waits several times, each time with patience.
pytestmark = pytest.mark.timeout(900.0)


def start(frame: DataFrame, url: str, topic: str, checkpoint: Path, now: bool = False, **options: str) -> PatientQuery:
    writing = (
        frame.select("key", "value")
        .writeStream.format("headrace")
        .options(url=url, topic=topic, checkpointLocation=str(checkpoint), **options)
    )
    return PatientQuery((writing.trigger(availableNow=True) if now else writing).start)


def test_what_comes_goes_on_exactly_once_over_restarts(
    spark: SparkSession, client: Client, url: str, topic: str, tmp_path: Path
) -> None:
    copied = f"{topic}-copied"
    client.create_topic(topic, partitions=2)
    client.create_topic(copied, partitions=3)
    publish(client, topic, numbers(0, 100))
    options = {"startingOffsets": "earliest", "group": "copying"}
    query = start(read_stream(spark, url, topic, **options), url, copied, tmp_path / "checkpoint")
    try:
        wait_until(lambda: query.goes_on() and len(values_of(client, copied)) == 100, "the first hundred are there")
        # A topic that grows meanwhile: the new partition is found without a restart.
        client.alter_topic(topic, partitions=4)
        publish(client, topic, numbers(100, 200))
        wait_until(lambda: query.goes_on() and len(values_of(client, copied)) == 200, "the second hundred are there")
        # The topic is quiet now, and the group is at its end all the same.
        wait_until(
            lambda: query.goes_on() and client.describe_group(topic, "copying").lag_messages == 0,
            "the group is at the end",
        )
    finally:
        query.stop()
    publish(client, topic, numbers(200, 300))
    query = start(read_stream(spark, url, topic, **options), url, copied, tmp_path / "checkpoint", now=True)
    query.finish(PATIENCE_SECONDS)
    assert sorted(values_of(client, copied), key=int) == numbers(0, 300)


def start_named(spark: SparkSession, frame: DataFrame, root: Path, **options: str) -> PatientQuery:
    """Start a query with a name, whose checkpoint is where the session keeps them."""
    writing = frame.select("value").writeStream.queryName("copying").format("headrace").options(**options)

    def begin() -> StreamingQuery:
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(root))
        try:
            return writing.trigger(availableNow=True).start()
        finally:
            spark.conf.unset("spark.sql.streaming.checkpointLocation")

    return PatientQuery(begin)


@pytest.mark.parametrize("is_named", [False, True], ids=["given checkpoint", "default checkpoint"])
def test_a_copied_checkpoint_loses_no_batch_in_silence(
    spark: SparkSession, client: Client, url: str, topic: str, tmp_path: Path, is_named: bool
) -> None:
    copied = f"{topic}-copied"
    client.create_topic(topic)
    client.create_topic(copied)
    checkpoints = [tmp_path / "checkpoint", tmp_path / "twin"]
    for place, checkpoint in enumerate([*checkpoints[:1], *checkpoints]):
        publish(client, topic, numbers(place * 10, place * 10 + 10))
        frame = read_stream(spark, url, topic, startingOffsets="earliest")
        if is_named:
            query = start_named(spark, frame, checkpoint, url=url, topic=copied, sinkId=f"{topic}-sink")
        else:
            query = start(frame, url, copied, checkpoint, now=True, sinkId=f"{topic}-sink")
        if checkpoint == checkpoints[1]:
            with pytest.raises(StreamingQueryException, match="another batch 1 to topic"):
                query.finish(PATIENCE_SECONDS)
        else:
            query.finish(PATIENCE_SECONDS)
        if place == 0:
            shutil.copytree(checkpoints[0], checkpoints[1])
    assert sorted(values_of(client, copied), key=int) == numbers(0, 20)


def test_available_now_honours_the_limits_and_ends(
    spark: SparkSession, client: Client, url: str, topic: str, tmp_path: Path
) -> None:
    copied = f"{topic}-copied"
    client.create_topic(topic, partitions=2)
    client.create_topic(copied)
    publish(client, topic, numbers(0, 100))
    source = read_stream(spark, url, topic, startingOffsets="earliest", maxMessagesPerTrigger="40")
    query = start(source, url, copied, tmp_path / "checkpoint", now=True)
    query.finish(PATIENCE_SECONDS)
    assert [query.rows[number] for number in sorted(query.rows)] == [40, 40, 20]
    assert sorted(values_of(client, copied), key=int) == numbers(0, 100)


@pytest.mark.parametrize("way", [read_stream, read_fast])
def test_messages_behind_shrink_until_none_are_left(
    spark: SparkSession, client: Client, url: str, topic: str, tmp_path: Path, way: Callable[..., DataFrame]
) -> None:
    copied = f"{topic}-copied"
    client.create_topic(topic, partitions=2)
    client.create_topic(copied)
    publish(client, topic, numbers(0, 100), [b"key-%d" % number for number in range(100)])
    query = start(
        way(spark, url, topic, startingOffsets="earliest", maxMessagesPerTrigger="40"), url, copied, tmp_path / "cp"
    )

    def found() -> list[tuple[int, int]]:
        """Messages read and messages behind, of each batch with messages."""
        reports = [report for report in query.reports() if messages_read(report)]
        return [(messages_read(report), total_behind(report)) for report in reports]

    def total_behind(report: object) -> int:
        behind = messages_behind(report)
        assert behind is not None and behind.by_topic == {topic: behind.total}
        assert behind.min <= behind.average <= behind.max and behind.average == behind.total / 2
        return behind.total

    try:
        wait_until(lambda: query.goes_on() and len(found()) == 3, "three batches were reported")
        assert found() == [(40, 60), (40, 20), (20, 0)]
        publish(client, topic, numbers(100, 150), [b"key-%d" % number for number in range(50)])
        wait_until(lambda: query.goes_on() and sum(read for read, _ in found()) == 150, "all batches were reported")
        assert found()[-1][1] == 0 and total_behind(query.reports()[-1]) == 0
    finally:
        query.stop()
    assert sorted(values_of(client, copied), key=int) == numbers(0, 150)


def test_a_query_may_change_to_the_faster_way_and_back(
    spark: SparkSession, client: Client, url: str, topic: str, tmp_path: Path
) -> None:
    copied = f"{topic}-copied"
    client.create_topic(topic, partitions=20)
    client.create_topic(copied)
    for place, way in enumerate([read_stream, read_fast, read_stream]):
        publish(client, topic, numbers(place * 100, place * 100 + 100))
        frame = way(spark, url, topic, startingOffsets="earliest", maxMessagesPerTrigger="60", group="copying")
        query = start(frame, url, copied, tmp_path / "checkpoint", now=True)
        query.finish(PATIENCE_SECONDS)
        assert [query.rows[number] for number in sorted(query.rows)] == [60, 40]
        assert sorted(values_of(client, copied), key=int) == numbers(0, place * 100 + 100)


def test_a_failing_query_tells_what_is_wrong(
    spark: SparkSession, client: Client, url: str, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    client.create_topic(f"{topic}-small", message_bytes_max=5)
    publish(client, topic, [b"too large for the other"])
    source = read_stream(spark, url, topic, startingOffsets="earliest")
    with pytest.raises(StreamingQueryException, match="at most 5 bytes"):
        start(source, url, f"{topic}-small", tmp_path / "checkpoint", now=True).finish(PATIENCE_SECONDS)
    assert values_of(client, f"{topic}-small") == []

"""The planning of micro-batches against a real broker, call by call as Spark makes them."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from headrace.broker import Broker
from headrace.client import Client
from headrace.core.errors import InvalidInput, MessagesLost
from headrace.spark.options import read_options
from headrace.spark.read.splits import Range, Split
from headrace.spark.read.stream_reader import StreamReader
from headrace.spark.schema import read_schema
from tests.spark.conftest import AdvancingClock
from tests.spark.topics import numbers, publish

ALL = ReadAllAvailable()


def reader_of(url: str, topic: str, **options: str) -> StreamReader:
    parsed = read_options({"url": url, "topic": topic, "startingOffsets": "earliest", **options})
    return StreamReader(parsed, read_schema(parsed.columns))


def carried(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset by way of the checkpoint."""
    carried: dict[str, Any] = json.loads(json.dumps(offset))
    return carried


def latest(reader: StreamReader, start: dict[str, Any], limit: ReadLimit | None = None) -> dict[str, Any]:
    return carried(reader.latestOffset(start, reader.getDefaultReadLimit() if limit is None else limit))


def offsets(given: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = given["offsets"]
    return found


def planned(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    splits = [split for split in reader.partitions(start, end) if isinstance(split, Split)]
    return [(part.partition, part.start, part.end) for split in splits for part in split.ranges]


def one(partition: int, start: int, end: int) -> Split:
    return Split((Range(partition, start, end),))


@pytest.fixture
def outlive(broker: Broker, clock: AdvancingClock, client: Client) -> Callable[[str], None]:
    """Lets retention take everything that is there and that nothing holds."""

    def outlive(topic: str) -> None:
        client.alter_topic(topic, retention_seconds=1)
        clock.step(2)
        broker.maintenance.run_all()
        client.alter_topic(topic, retention_seconds=3600)

    return outlive


def test_a_batch_ends_at_what_is_there(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 10))
    reader = reader_of(url, topic)
    start = reader.initialOffset()
    end = latest(reader, start)
    assert offsets(start) == {"0": 0, "1": 0}
    assert offsets(end) == {"0": 5, "1": 5}
    assert planned(reader, start, end) == [(0, 0, 5), (1, 0, 5)]
    assert planned(reader, end, end) == []
    assert reader.reportLatestOffset() == end


def test_nothing_new_is_the_very_same_offset(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 3))
    reader = reader_of(url, topic)
    end = latest(reader, reader.initialOffset())
    assert json.dumps(latest(reader, end)) == json.dumps(end)


def test_news_end_the_wait(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    reader = reader_of(url, topic)
    start = reader.initialOffset()
    waiting = threading.Event()

    def publish_meanwhile() -> None:
        waiting.wait()
        publish(client, topic, [b"notifications"])

    thread = threading.Thread(target=publish_meanwhile)
    thread.start()
    waiting.set()
    deadline = time.monotonic() + 60.0
    while offsets(latest(reader, start)) != {"0": 1}:
        assert time.monotonic() < deadline
    thread.join()


def test_a_partition_that_is_new_begins_at_its_beginning(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    publish(client, topic, [b"a"])
    reader = reader_of(url, topic, startingOffsets="latest")
    start = reader.initialOffset()
    client.alter_topic(topic, partitions=2)
    with client.producer(topic) as producer:
        producer.send_batch(pa.record_batch({"value": [b"b"], "partition": pa.array([1], pa.int32())}))
    end = latest(reader, start)
    assert offsets(end) == {"0": 1, "1": 1}
    assert planned(reader, start, end) == [(1, 0, 1)]


def test_limits_are_shared_out_and_reached_in_steps(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 10))
    reader = reader_of(url, topic, maxMessagesPerTrigger="4")
    assert reader.getDefaultReadLimit() == ReadMaxRows(4)
    place, steps = reader.initialOffset(), []
    for _ in range(3):
        place = latest(reader, place)
        steps.append(sum(offsets(place).values()))
    assert steps == [4, 8, 10]
    # A query that is to do everything at once is not limited.
    assert sum(offsets(latest(reader, reader.initialOffset(), ALL)).values()) == 10


def test_bytes_are_limited_by_what_messages_really_take(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    publish(client, topic, [b"x" * 1000] * 10)
    publish(client, topic, [b"x" * 10] * 100)
    reader = reader_of(url, topic, maxBytesPerTrigger="5000")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(5000)
    place, steps = reader.initialOffset(), [0]
    while steps[-1] < 110:
        place = latest(reader, place)
        steps.append(sum(offsets(place).values()))
    # Large messages are few in a batch, small ones many.
    assert 3 <= steps[1] <= 5
    assert len(steps) < 12


def test_both_limits_hold(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    publish(client, topic, [b"x" * 1000] * 10)
    few = reader_of(url, topic, maxBytesPerTrigger="1000000", maxMessagesPerTrigger="2")
    assert offsets(latest(few, few.initialOffset())) == {"0": 2}
    small = reader_of(url, topic, maxBytesPerTrigger="2000", maxMessagesPerTrigger="9")
    assert 1 <= offsets(latest(small, small.initialOffset()))["0"] <= 2


def test_available_now_ends_at_what_was_there(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 5))
    reader = reader_of(url, topic, maxMessagesPerTrigger="3")
    reader.prepareForTriggerAvailableNow()
    publish(client, topic, numbers(5, 10))
    client.alter_topic(topic, partitions=2)
    place, steps = reader.initialOffset(), []
    for _ in range(3):
        place = latest(reader, place)
        steps.append(offsets(place)["0"])
    assert steps == [3, 5, 5]


def test_a_group_is_where_the_query_is(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 10))
    reader = reader_of(url, topic, group="billing", important="true")
    end = latest(reader, reader.initialOffset())
    assert client.describe_group(topic, "billing").lag_messages == 10
    assert client.describe_group(topic, "billing").important
    # Spark asks for more once the batch is done: that is when it was read.
    latest(reader, end)
    assert client.describe_group(topic, "billing").lag_messages == 0
    publish(client, topic, numbers(10, 12))
    reader.commit(latest(reader, end))
    assert client.committed(topic, "billing") == {0: 6, 1: 6}


def test_a_group_that_was_deleted_is_made_again(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 10))
    reader = reader_of(url, topic, group="again", important="true")
    end = latest(reader, reader.initialOffset())
    latest(reader, end)
    client.delete_group(topic, "again")
    with client.producer(topic) as producer:
        producer.send_batch(pa.record_batch({"value": [b"b"], "partition": pa.array([1], pa.int32())}))
    latest(reader, latest(reader, end))
    assert client.committed(topic, "again") == {0: 5, 1: 6}
    assert client.describe_group(topic, "again").important


def test_a_seek_of_a_querys_group_is_not_undone_while_it_runs(
    client: Client, url: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 10))
    reader = reader_of(url, topic, group="moved")
    end = latest(reader, reader.initialOffset())
    latest(reader, end)
    assert client.committed(topic, "moved") == {0: 10}
    client.seek(topic, "moved", {0: 3})
    publish(client, topic, numbers(10, 12))
    end = latest(reader, end)
    assert planned(reader, reader.initialOffset(), end) == [(0, 0, 12)], "the query itself goes on"
    latest(reader, end)
    reader.commit(end)
    assert client.committed(topic, "moved") == {0: 3}
    assert caplog.text.count("was moved by a seek") == 1
    # The next run reports from its checkpoint on.
    latest(reader_of(url, topic, group="moved"), end)
    assert client.committed(topic, "moved") == {0: 12}


def test_a_group_whose_size_changes_is_still_where_the_query_is(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 10))
    reader = reader_of(url, topic, group="sized")
    end = latest(reader, reader.initialOffset())
    client.register_group(topic, "sized", consumers=2)
    latest(reader, end)
    assert client.committed(topic, "sized") == {0: 10}


def test_a_commit_beyond_a_topic_that_was_made_anew_stays_within_it(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 10))
    reader = reader_of(url, topic, group="shorter", failOnDataLoss="false")
    end = latest(reader, reader.initialOffset())
    client.delete_topic(topic)
    client.create_topic(topic)
    publish(client, topic, numbers(0, 2))
    latest(reader, end)
    reader.commit(end)
    assert client.committed(topic, "shorter") == {0: 2}


def test_a_group_is_asked_for_nothing_while_nothing_happens(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    publish(client, topic, [b"a"])
    reader = reader_of(url, topic, group="quiet")
    end = latest(reader, latest(reader, reader.initialOffset()))
    latest(reader, end)
    client.delete_group(topic, "quiet")
    # A commit, or another registration, would fail or make it again.
    latest(reader, end)
    assert client.list_groups(topic) == []


def test_lost_messages_fail_the_query_with_their_ranges(
    outlive: Callable[[str], None], client: Client, url: str, topic: str
) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 5))
    reader = reader_of(url, topic)
    start = reader.initialOffset()
    end = latest(reader, start)
    outlive(topic)
    said = "partition 0: 5 messages, offsets 0 to 4"
    with pytest.raises(MessagesLost, match=said):
        reader.latestOffset(start, ALL)
    with pytest.raises(MessagesLost, match=said):
        reader.partitions(start, end)
    with pytest.raises(MessagesLost, match=said):
        list(reader.read(one(0, 0, 5)))


def test_lost_messages_are_skipped_and_counted_if_so_told(
    outlive: Callable[[str], None], client: Client, url: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 5))
    reader = reader_of(url, topic, failOnDataLoss="false")
    start = reader.initialOffset()
    outlive(topic)
    publish(client, topic, numbers(5, 7))
    end = latest(reader, start)
    assert offsets(end) == {"0": 7}
    assert planned(reader, start, end) == [(0, 5, 7)]
    assert caplog.text.count("skipped 5 messages") == 1
    # A task that was planned before reads what is left.
    rows = [row for batch in reader.read(one(0, 0, 7)) for row in batch.column("value").to_pylist()]
    assert rows == [b"5", b"6"]


def test_lost_messages_are_skipped_within_a_limit_of_bytes(
    outlive: Callable[[str], None], client: Client, url: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 5))
    reader = reader_of(url, topic, failOnDataLoss="false", maxBytesPerTrigger="1000000")
    start = reader.initialOffset()
    outlive(topic)
    publish(client, topic, numbers(5, 7))
    skipped = latest(reader, start)
    assert offsets(skipped) == {"0": 5}
    assert planned(reader, start, skipped) == []
    assert caplog.text.count("skipped 5 messages") == 1
    end = latest(reader, skipped)
    assert planned(reader, skipped, end) == [(0, 5, 7)]


def test_an_important_group_keeps_what_was_not_read(
    outlive: Callable[[str], None], client: Client, url: str, topic: str
) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 5))
    reader = reader_of(url, topic, group="careful", important="true")
    start = reader.initialOffset()
    end = latest(reader, start)
    outlive(topic)
    assert planned(reader, start, end) == [(0, 0, 5)]
    latest(reader, end)
    outlive(topic)
    assert client.offsets(topic) == {0: (5, 5)}


@pytest.mark.parametrize(
    ("partitions", "messages", "lost"), [(1, 5, "offsets 2 to 4"), (2, 10, "partition 1: 5 messages")]
)
def test_a_topic_that_was_made_anew_is_noticed_also_with_fewer_partitions(
    client: Client, url: str, topic: str, partitions: int, messages: int, lost: str
) -> None:
    client.create_topic(topic, partitions=partitions)
    publish(client, topic, numbers(0, messages))
    strict, lenient = reader_of(url, topic), reader_of(url, topic, failOnDataLoss="false")
    end = latest(strict, strict.initialOffset())
    client.delete_topic(topic)
    client.create_topic(topic)
    publish(client, topic, numbers(0, 2))
    with pytest.raises(MessagesLost, match=lost):
        strict.latestOffset(end, ALL)
    anew = latest(lenient, end)
    assert offsets(anew) == {"0": 2}
    assert planned(lenient, end, anew) == [(0, 0, 2)]


def test_rows_are_read_as_spark_wants_them(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    with client.producer(topic, codec="zstd") as producer:
        producer.send(b"packed", key=b"k", attributes={"kind": b"sale"}).result(30.0)
    reader = pickle.loads(pickle.dumps(reader_of(url, topic)))
    (batch,) = reader.read(one(0, 0, 1))
    row = batch.to_pylist()[0]
    assert (row["value"], row["key"], row["attributes"], row["codec"]) == (b"packed", b"k", [("kind", b"sale")], None)
    assert (row["topic"], row["partition"], row["offset"]) == (topic, 0, 0)
    (raw,) = reader_of(url, topic, decode="false", columns="value,codec").read(one(0, 0, 1))
    assert raw.column("codec").to_pylist() == ["zstd"]
    assert raw.column("value").to_pylist() != [b"packed"]
    (named,) = reader_of(url, topic, columns="topic").read(one(0, 0, 1))
    assert named.to_pylist() == [{"topic": topic}]


def test_a_task_that_wants_no_more_lets_go(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    for _ in range(3):
        publish(client, topic, [b"x" * 100_000] * 100)
    batches = reader_of(url, topic).read(one(0, 0, 300))
    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-prefetch"]


def test_a_checkpoint_of_another_topic_is_refused(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    reader = reader_of(url, topic)
    with pytest.raises(InvalidInput, match="a new checkpoint"):
        reader.latestOffset({"version": 1, "topic": "another", "offsets": {}}, ALL)

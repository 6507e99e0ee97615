"""The planning of micro-batches against a real broker, call by call as Spark makes them."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from headrace.broker import Broker
from headrace.broker.read.wakeups import Wakeups
from headrace.client import Client
from headrace.client.retry import Calls
from headrace.core.errors import InvalidInput, MessagesLost, TopicNotFound
from headrace.spark.options import read_options
from headrace.spark.reader import split_reader as split_reading
from headrace.spark.reader import stream_offsets
from headrace.spark.reader.batch_reader import row_reader
from headrace.spark.reader.splits import PartitionKey, Range, Split
from headrace.spark.reader.stream_reader import StreamReader
from headrace.wire.operations import Operation, name_of
from tests.spark.conftest import AdvancingClock
from tests.spark.topics import numbers, publish, wait_until

ALL = ReadAllAvailable()


def reader_of(url: str, topic: str, **options: str) -> StreamReader:
    named = {"topic": topic} if topic else {}
    parsed = read_options({"url": url, **named, "startingOffsets": "earliest", **options})
    return StreamReader(parsed, row_reader(parsed)[0])


def carried(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset by way of the checkpoint."""
    carried: dict[str, Any] = json.loads(json.dumps(offset))
    return carried


def latest(reader: StreamReader, start: dict[str, Any], limit: ReadLimit | None = None) -> dict[str, Any]:
    return carried(reader.latestOffset(start, reader.getDefaultReadLimit() if limit is None else limit))


def offsets(given: dict[str, Any]) -> dict[str, int]:
    """The offsets of the only topic."""
    (found,) = by_name(given).values()
    return found


def by_name(given: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Offsets by topic."""
    found: dict[str, dict[str, int]] = {}
    for place, offset in stream_offsets.decode(given).items():
        found.setdefault(place.topic, {})[str(place.partition)] = offset
    return found


def planned(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    splits = [split for split in reader.partitions(start, end) if isinstance(split, Split)]
    return [(part.of.partition, part.start, part.end) for split in splits for part in split.ranges]


def one(client: Client, topic: str, start: int, end: int) -> Split:
    return Split((Range(PartitionKey(client.describe_topic(topic).id, topic, 0), start, end),))


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


def test_many_topics_are_planned_in_few_requests(
    client: Client, url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.spark.reader.topic_selection.DESCRIBED_TOPICS_MAX", 5)
    for number in range(12):
        client.create_topic(f"{topic}-{number}")
        publish(client, f"{topic}-{number}", [b"a"])
    calls, call = [], Calls.__call__

    def counted(of: Calls, operation: Operation[Any]) -> Any:
        calls.append(name_of(operation))
        return call(of, operation)

    monkeypatch.setattr(Calls, "__call__", counted)
    reader = reader_of(url, "", topicPattern=f"{topic}-.*")
    look = ["list_topics", *["describe_topics"] * 3]
    start = reader.initialOffset()
    end = latest(reader, start)
    assert calls == look * 2
    assert len(planned(reader, start, end)) == 12
    assert calls == look * 3


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


def test_the_bytes_of_all_partitions_are_one_question(
    client: Client, url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic(topic, partitions=500)
    places = pa.array([number % 500 for number in range(5_000)], pa.int32())
    with client.producer(topic) as producer:
        producer.send_batch(pa.record_batch({"value": [b"x" * 1000] * 5_000, "partition": places}))
    asked: list[int] = []
    offsets_within = Client.offsets_within

    def counted(client: Client, topic: str, ranges: Mapping[int, tuple[int, int, int]]) -> dict[int, int]:
        asked.append(len(ranges))
        return offsets_within(client, topic, ranges)

    monkeypatch.setattr(Client, "offsets_within", counted)
    monkeypatch.delattr(Client, "scan")
    reader = reader_of(url, topic, maxBytesPerTrigger="2500000")
    end = offsets(latest(reader, reader.initialOffset()))
    assert asked == [500]
    assert len(end) == 500 and 1_500 <= sum(end.values()) <= 2_500


@pytest.mark.parametrize("is_again", [False, True])
def test_a_topic_that_is_deleted_while_its_bytes_are_asked_weighs_nothing(
    client: Client, url: str, topic: str, monkeypatch: pytest.MonkeyPatch, is_again: bool
) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 10))
    offsets_within = Client.offsets_within

    def deleted(caller: Client, topic: str, ranges: Mapping[int, tuple[int, int, int]]) -> dict[int, int]:
        client.delete_topic(topic)
        if is_again:
            client.create_topic(topic)
        return offsets_within(caller, topic, ranges)

    reader = reader_of(url, topic, failOnDataLoss="false", maxBytesPerTrigger="1")
    start = reader.initialOffset()
    with monkeypatch.context() as patched:
        patched.setattr(Client, "offsets_within", deleted)
        end = latest(reader, start)
    assert planned(reader, start, end) == []
    assert by_name(latest(reader, end)) == ({topic: {"0": 0}} if is_again else {})


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


def test_a_commit_to_an_old_topic_is_not_one_to_the_new_one(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 10))
    reader = reader_of(url, topic, group="shorter", failOnDataLoss="false")
    end = latest(reader, reader.initialOffset())
    client.delete_topic(topic)
    client.create_topic(topic)
    publish(client, topic, numbers(0, 2))
    anew = latest(reader, end)
    reader.commit(end)
    assert client.committed(topic, "shorter") == {0: 0}
    reader.commit(anew)
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
        list(reader.read(one(client, topic, 0, 5)))


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
    rows = [row for batch in reader.read(one(client, topic, 0, 7)) for row in batch.column("value").to_pylist()]
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
    end = latest(reader, start)
    assert offsets(end) == {"0": 7}, "what is lost weighs nothing"
    assert planned(reader, start, end) == [(0, 5, 7)]
    assert caplog.text.count("skipped 5 messages") == 1


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


@pytest.mark.parametrize(("partitions", "messages"), [(1, 0), (1, 2), (2, 2), (1, 300)])
def test_a_topic_that_was_recreated_is_lost_however_long_it_is(
    client: Client, url: str, topic: str, partitions: int, messages: int, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 200))
    strict, lenient = reader_of(url, topic), reader_of(url, topic, failOnDataLoss="false")
    start = strict.initialOffset()
    end = latest(strict, start)
    client.delete_topic(topic)
    client.create_topic(topic, partitions=partitions)
    if messages:
        publish(client, topic, numbers(0, messages))
    with pytest.raises(MessagesLost, match="deleted and created again"):
        strict.latestOffset(end, ALL)
    with pytest.raises(MessagesLost, match="partition 0: 100 messages"):
        strict.partitions(start, end)
    anew = latest(lenient, end)
    assert sum(stop - begin for _, begin, stop in planned(lenient, end, anew)) == messages
    assert "was deleted and created again" in caplog.text


@pytest.mark.parametrize("is_again", [False, True], ids=["deleted", "created again"])
def test_a_topic_that_is_deleted_while_a_query_waits_is_lost(
    broker: Broker, client: Client, url: str, topic: str, caplog: pytest.LogCaptureFixture, is_again: bool
) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 5))
    strict, lenient = (reader_of(url, topic, group="g", failOnDataLoss=fails) for fails in ("true", "false"))
    end = latest(strict, strict.initialOffset())
    assert latest(lenient, lenient.initialOffset()) == end

    def delete_meanwhile(watches: Wakeups) -> None:
        wait_until(lambda: len(watches) == 1, "the query waits for messages")
        client.delete_topic(topic)
        if is_again:
            client.create_topic(topic)

    for reader in (lenient, strict):
        thread = threading.Thread(target=delete_meanwhile, args=(broker.topics.find(topic).topic.watches,))
        thread.start()
        if reader is strict:
            with pytest.raises(MessagesLost, match="it was deleted"):
                while True:
                    strict.latestOffset(end, ALL)
        else:
            without, expected = end, {topic: {"0": 0}} if is_again else {}
            # It may look between the deletion and the creation.
            while thread.is_alive() or by_name(without) != expected:
                without = latest(lenient, without)
            lenient.commit(without)
            assert "it was deleted" in caplog.text
            if not is_again:
                client.create_topic(topic)
            publish(client, topic, numbers(0, 3))
            anew = latest(lenient, without)
            assert planned(lenient, without, anew) == [(0, 0, 3)]
            end = latest(strict, strict.initialOffset())
        thread.join()


def test_progress_in_a_topic_that_was_just_deleted_is_not_reported(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 5))
    reader = reader_of(url, topic, group="g", failOnDataLoss="false")
    end = latest(reader, reader.initialOffset())
    client.delete_topic(topic)
    reader.commit(end)
    assert by_name(latest(reader, end)) == {}


def test_a_named_topic_that_was_deleted_is_lost_and_may_come_back(
    client: Client, url: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        client.create_topic(name)
        publish(client, name, numbers(0, 5))
    named = f"{topic},{other}"
    strict, lenient = reader_of(url, named), reader_of(url, named, failOnDataLoss="false")
    start = strict.initialOffset()
    end = latest(strict, start)
    client.delete_topic(other)
    with pytest.raises(MessagesLost, match="it was deleted after"):
        strict.latestOffset(end, ALL)
    with pytest.raises(MessagesLost, match="5 messages"):
        strict.partitions(start, end)
    assert planned(lenient, start, end) == [(0, 0, 5)], "a batch that is repeated skips it"
    lenient.prepareForTriggerAvailableNow()
    without = latest(lenient, end)
    assert by_name(without) == {topic: {"0": 5}}
    assert latest(lenient, without) == without, "the query continues without it"
    assert caplog.text.count(f"topic '{other}' does not exist") == 1
    with pytest.raises(TopicNotFound):
        strict.latestOffset(without, ALL)
    for reader in (strict, lenient):
        with pytest.raises(TopicNotFound):
            reader.initialOffset()
    client.create_topic(other)
    publish(client, other, numbers(0, 3))
    again = reader_of(url, named, failOnDataLoss="false")
    assert planned(again, without, latest(again, without)) == [(0, 0, 3)]


def test_a_query_whose_pattern_matches_nothing_does_not_ask_all_the_time(url: str, topic: str) -> None:
    reader = reader_of(url, "", topicPattern=f"{topic}-.*")
    begin = time.monotonic()
    start = reader.initialOffset()
    assert latest(reader, start) == start
    assert time.monotonic() - begin > 0.4


def test_a_checkpoint_of_version_1_goes_on(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 10))
    reader = reader_of(url, topic)
    old = {"version": 1, "topic": topic.upper(), "offsets": {"0": 4}}
    end = latest(reader, old)
    assert offsets(end) == {"0": 10}
    assert planned(reader, old, end) == [(0, 4, 10)]
    assert planned(reader, old, {**old, "offsets": {"0": 6}}) == [(0, 4, 6)]
    shorter = {**old, "offsets": {"0": 12}}
    with pytest.raises(MessagesLost, match="offsets 10 to 11"):
        reader.latestOffset(shorter, ALL)


def test_a_checkpoint_of_an_earlier_version_stays_as_it_is_until_there_is_something_new(
    client: Client, url: str, topic: str
) -> None:
    client.create_topic(topic)
    publish(client, topic, numbers(0, 10))
    reader = reader_of(url, topic)
    topic_id = str(client.describe_topic(topic).id)
    old = {"version": 2, "topics": {topic_id: {"name": topic, "offsets": {"0": 10}}}}
    assert latest(reader, old) == old
    publish(client, topic, numbers(0, 1))
    assert latest(reader, old) == {"version": 3, "topics": {topic_id: {"name": topic, "next": [11]}}}


def test_topics_by_name_and_one_that_is_added_to_the_checkpoint(client: Client, url: str, topic: str) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        client.create_topic(name, partitions=2)
        publish(client, name, numbers(0, 10))
    alone = reader_of(url, topic)
    start = latest(alone, alone.initialOffset())
    both = reader_of(url, f"{topic}, {other}", group="both")
    end = latest(both, start)
    assert by_name(end) == {topic: {"0": 5, "1": 5}, other: {"0": 5, "1": 5}}
    assert planned(both, start, end) == [(0, 0, 5), (1, 0, 5)], "only the new one, from its beginning"
    assert json.dumps(latest(both, end)) == json.dumps(end), "nothing new is the very same offset"
    assert [client.describe_group(name, "both").lag_messages for name in (topic, other)] == [0, 0]
    with pytest.raises(InvalidInput, match="read it too"):
        reader_of(url, topic).latestOffset(end, ALL)


def test_topics_by_pattern_and_those_that_appear_later(client: Client, url: str, topic: str) -> None:
    pattern = f"{topic}-(a|b)"
    for name in (f"{topic}-A", f"{topic}-abc"):
        client.create_topic(name)
        publish(client, name, numbers(0, 3))
    strict, lenient = (reader_of(url, "", topicPattern=pattern, failOnDataLoss=fails) for fails in ("true", "false"))
    start = strict.initialOffset()
    assert by_name(start) == {f"{topic}-A": {"0": 0}}
    client.create_topic(f"{topic}-b")
    publish(client, f"{topic}-b", numbers(0, 2))
    end = latest(strict, start)
    assert by_name(end) == {f"{topic}-A": {"0": 3}, f"{topic}-b": {"0": 2}}
    rows = [
        (row["topic"], row["value"])
        for split in strict.partitions(start, end)
        for batch in strict.read(split)
        for row in batch.select(["topic", "value"]).to_pylist()
    ]
    expected = [(f"{topic}-A", value) for value in numbers(0, 3)] + [(f"{topic}-b", value) for value in numbers(0, 2)]
    assert rows == expected
    client.delete_topic(f"{topic}-A")
    with pytest.raises(MessagesLost, match="it was deleted after"):
        strict.latestOffset(end, ALL)
    assert by_name(latest(lenient, end)) == {f"{topic}-b": {"0": 2}}


def test_a_batch_waits_for_enough_messages_but_not_for_ever(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    options = {"url": url, "topic": topic, "startingOffsets": "earliest"}
    parsed = read_options({**options, "minMessagesPerTrigger": "5", "maxTriggerDelaySeconds": "60"})
    now = [0.0]
    reader = StreamReader(parsed, row_reader(parsed)[0], lambda: now[0])
    start = reader.initialOffset()
    publish(client, topic, numbers(0, 4))
    assert offsets(latest(reader, start)) == {"0": 0}
    publish(client, topic, numbers(4, 6))
    place = latest(reader, start)
    assert offsets(place) == {"0": 6}
    publish(client, topic, numbers(6, 7))
    assert offsets(latest(reader, place)) == {"0": 6}
    now[0] = 59.0
    assert offsets(latest(reader, place)) == {"0": 6}
    now[0] = 60.0
    assert offsets(latest(reader, place)) == {"0": 7}
    # An available-now query ends with what is there.
    publish(client, topic, numbers(7, 8))
    place = {**place, "topics": {**place["topics"]}}
    reader.prepareForTriggerAvailableNow()
    assert offsets(latest(reader, place)) == {"0": 8}


def test_partitions_start_at_their_own_times(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    publish(client, topic, numbers(0, 2))
    publish(client, topic, numbers(2, 4))
    second = client.read(topic, 1).column("timestamp")[1].as_py()
    options = {"url": url, "topic": topic, "startingTimestamp": json.dumps({"1": second.isoformat()})}
    parsed = read_options(options)
    reader = StreamReader(parsed, row_reader(parsed)[0])
    assert offsets(reader.initialOffset()) == {"0": 0, "1": 1}
    assert planned(reader_of(url, topic), reader.initialOffset(), latest(reader, reader.initialOffset())) == [
        (0, 0, 2),
        (1, 1, 2),
    ]


def test_topics_start_at_their_own_places(client: Client, url: str, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "abcd"]
    for name in names:
        client.create_topic(name, partitions=2)
        publish(client, name, numbers(0, 4))
        publish(client, name, numbers(4, 8))
    later = [client.read(name, 1).column("timestamp")[2].as_py().isoformat() for name in names]
    starts = {names[0].upper(): {"1": later[0]}, names[1]: later[1], names[2]: {"0": "latest"}}
    wanted = {
        names[0]: {"0": 0, "1": 2},
        names[1]: {"0": 2, "1": 2},
        names[2]: {"0": 4, "1": 0},
        names[3]: {"0": 0, "1": 0},
    }
    given = {"topic": ",".join(names), "startingOffsets": json.dumps(starts)}
    assert by_name(reader_of(url, **given).initialOffset()) == wanted
    times = {name: place for name, place in starts.items() if name != names[2]}
    parsed = read_options({"url": url, "topicPattern": f"{topic}-[ab]", "startingTimestamp": json.dumps(times)})
    found = by_name(StreamReader(parsed, row_reader(parsed)[0]).initialOffset())
    assert found == {name: wanted[name] for name in names[:2]}
    with pytest.raises(InvalidInput, match="not one of the topics"):
        read_options({"url": url, "topic": names[0], "startingOffsets": json.dumps({names[1]: "latest"})})
    with pytest.raises(InvalidInput, match="ISO 8601"):
        read_options({"url": url, "topic": names[0], "startingTimestamp": json.dumps({names[0]: "latest"})})


def test_rows_are_read_as_spark_wants_them(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    with client.producer(topic, codec="zstd") as producer:
        producer.send(b"packed", key=b"k", attributes={"kind": b"sale"}).result(30.0)
    reader = pickle.loads(pickle.dumps(reader_of(url, topic)))
    (batch,) = reader.read(one(client, topic, 0, 1))
    row = batch.to_pylist()[0]
    assert (row["value"], row["key"], row["attributes"], row["codec"]) == (b"packed", b"k", [("kind", b"sale")], None)
    assert (row["topic"], row["partition"], row["offset"]) == (topic, 0, 0)
    (raw,) = reader_of(url, topic, decode="false", columns="value,codec").read(one(client, topic, 0, 1))
    assert raw.column("codec").to_pylist() == ["zstd"]
    assert raw.column("value").to_pylist() != [b"packed"]
    (named,) = reader_of(url, topic, columns="topic").read(one(client, topic, 0, 1))
    assert named.to_pylist() == [{"topic": topic}]


def test_many_partitions_are_read_in_one_request(
    outlive: Callable[[str], None], client: Client, url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_topic(topic, partitions=40)
    publish(client, topic, numbers(0, 400))
    publish(client, topic, numbers(400, 800))
    monkeypatch.setattr(split_reading, "_BATCH_MESSAGES", 100)
    asked: list[object] = []
    scan_ranges = Client.scan_ranges

    def counted(*args: Any, **given: Any) -> Any:
        asked.append(args)
        return scan_ranges(*args, **given)

    monkeypatch.setattr(Client, "scan_ranges", counted)
    topic_id = client.describe_topic(topic).id
    places = [PartitionKey(topic_id, topic, partition) for partition in range(40)]
    split = Split((*(Range(place, 5, 15) for place in places), Range(places[-1], 15, 18)))
    rows = [
        (row["partition"], row["offset"])
        for batch in reader_of(url, topic, columns="partition,offset").read(split)
        for row in batch.to_pylist()
    ]
    expected = [(place.partition, offset) for place in places for offset in range(5, 15)] + [
        (39, offset) for offset in range(15, 18)
    ]
    assert sorted(rows) == expected and len(asked) == 1
    assert [offset for partition, offset in rows if partition == 7] == list(range(5, 15)), "each in its order"
    (values,) = zip(
        *((row["value"],) for batch in reader_of(url, topic, columns="value").read(split) for row in batch.to_pylist()),
        strict=True,
    )
    assert len(values) == 403
    outlive(topic)
    publish(client, topic, numbers(0, 40))
    with pytest.raises(MessagesLost, match="partition 39: 13 messages, offsets 5 to 17"):
        list(reader_of(url, topic).read(split))
    left = Split(tuple(Range(place, 5, 21) for place in places))
    lenient = reader_of(url, topic, failOnDataLoss="false", columns="offset")
    assert [row["offset"] for batch in lenient.read(left) for row in batch.to_pylist()] == [20] * 40


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_task_reads_no_other_topic_of_the_same_name(client: Client, url: str, topic: str, partitions: int) -> None:
    client.create_topic(topic, partitions=partitions)
    publish(client, topic, numbers(0, 30))
    reader = reader_of(url, topic)
    start = reader.initialOffset()
    (split,) = reader.partitions(start, latest(reader, start))
    client.delete_topic(topic)
    client.create_topic(topic, partitions=partitions)
    publish(client, topic, numbers(100, 130))
    with pytest.raises(MessagesLost):
        list(reader.read(split))


def test_a_task_that_wants_no_more_lets_go(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    for _ in range(3):
        publish(client, topic, [b"x" * 100_000] * 100)
    batches = reader_of(url, topic).read(one(client, topic, 0, 300))
    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-prefetch"]


def test_a_checkpoint_of_another_topic_is_refused(client: Client, url: str, topic: str) -> None:
    client.create_topic(topic)
    reader = reader_of(url, topic)
    with pytest.raises(InvalidInput, match="a new checkpoint"):
        reader.latestOffset({"version": 1, "topic": "another", "offsets": {"0": 0}}, ALL)

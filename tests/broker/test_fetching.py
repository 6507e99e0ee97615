"""Fetching: by offset and by time, within limits, and waiting for what is yet to come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.errors import OffsetOutOfRange, PartitionNotFound
from headrace.core.limits import MICROSECONDS
from headrace.core.messages import READ_SCHEMA
from tests.broker.background import Background, eventually, together, until_waiting
from tests.broker.clock import START_US, SettableClock
from tests.broker.messages import batch, content, values_of
from tests.broker.sites import Site


def fill(broker: Broker, commits: int = 10, rows: int = 2) -> list[bytes]:
    """A topic of one partition with some commits of a few rows."""
    broker.create_topic("orders")
    values = [b"%03d" % number for number in range(commits * rows)]
    for first in range(0, len(values), rows):
        broker.publish("orders", batch(*values[first : first + rows]))
    return values


def test_a_fetch_continues_over_commits(broker: Broker) -> None:
    values = fill(broker)
    for offset in range(len(values) + 1):
        read = broker.fetch("orders", 0, offset)
        assert values_of(read) == values[offset:]
        assert read.column("offset").to_pylist() == list(range(offset, len(values)))
        assert read.schema == READ_SCHEMA


def test_a_fetch_has_at_most_max_messages(broker: Broker) -> None:
    values = fill(broker)
    for offset in (0, 1, 7, 19):
        for limit in (1, 2, 3, 20, 1000):
            assert values_of(broker.fetch("orders", 0, offset, max_messages=limit)) == values[offset : offset + limit]


def test_a_fetch_has_at_most_max_bytes_but_at_least_one_message(broker: Broker) -> None:
    values = fill(broker)
    for limit in range(1, 70):
        read = values_of(broker.fetch("orders", 0, 4, max_bytes=limit))
        assert read == values[4 : 4 + len(read)]
        assert len(read) == 1 or sum(map(len, read)) <= limit
    assert values_of(broker.fetch("orders", 0, 0, max_bytes=1_000_000)) == values


def test_reading_in_bites_of_any_size_gives_every_message_once(broker: Broker) -> None:
    values = fill(broker, commits=25, rows=3)
    generator = np.random.default_rng(3)
    read: list[bytes] = []
    while len(read) < len(values):
        messages, size = int(generator.integers(1, 9)), int(generator.integers(1, 40))
        read += values_of(broker.fetch("orders", 0, len(read), max_messages=messages, max_bytes=size))
    assert read == values


def test_a_partition_is_read_alone(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)
    broker.publish("orders", batch(b"a", b"b", b"c", b"d", partition=[0, 2, 2, 0]))
    read = broker.fetch("orders", 2, 0)
    assert values_of(read) == [b"b", b"c"]
    assert read.column("partition").to_pylist() == [2, 2]
    assert broker.fetch("orders", 1, 0).num_rows == 0


def test_timestamps_are_the_brokers_and_rise(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", partitions=2)
    for step in (1, 0, -5, 2):
        clock.step(step)
        broker.publish("orders", batch(b"a"))
    times = sorted(
        time
        for partition in (0, 1)
        for time in broker.fetch("orders", partition, 0).column("timestamp").cast("int64").to_pylist()
    )
    second = START_US + MICROSECONDS
    assert times == [second, second + 1, second + 2, second + 3]


@pytest.mark.parametrize("offset", [-1, 21, 1000])
def test_an_offset_out_of_range_is_refused_with_the_valid_range(broker: Broker, offset: int) -> None:
    fill(broker)
    with pytest.raises(OffsetOutOfRange) as caught:
        broker.fetch("orders", 0, offset, wait_seconds=60)
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.start, error.end) == ("orders", 0, offset, 0, 20)
    assert "it must be 0 (the oldest kept) to 20 (the next to be written)" in str(error)


def test_below_the_oldest_message_kept_is_out_of_range(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", retention_seconds=10)
    for _ in range(6):
        broker.publish("orders", batch(b"old"))
    clock.step(20)
    broker.publish("orders", batch(b"new"))
    broker.maintenance.run_all()
    start, end = broker.offsets("orders")[0]
    assert start > 0
    with pytest.raises(OffsetOutOfRange) as caught:
        broker.fetch("orders", 0, 0)
    assert (caught.value.start, caught.value.end) == (start, end)
    assert values_of(broker.fetch("orders", 0, start))[-1] == b"new"


@pytest.mark.parametrize("partition", [-1, 1, 99])
def test_a_partition_that_is_not_there_is_refused(broker: Broker, partition: int) -> None:
    broker.create_topic("orders")
    for read in (partial(broker.fetch, "orders", partition, 0), partial(broker.offset_at, "orders", partition, 0)):
        with pytest.raises(PartitionNotFound, match="the topic has partitions 0 to 0"):
            read()


def test_numbers_of_numpy_are_numbers(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    receipts = broker.publish("orders", batch(b"a", b"b"))
    for value, partition, offset in zip([b"a", b"b"], receipts.partition, receipts.offset, strict=True):
        assert values_of(broker.fetch("orders", partition, offset, max_messages=np.int32(1))) == [value]  # type: ignore[arg-type]


def test_what_was_read_stays_as_it_is_whatever_comes_after(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", retention_seconds=1)
    broker.publish("orders", batch(b"a", b"b"))
    read = broker.fetch("orders", 0, 0)
    for _ in range(5):
        clock.step(5)
        broker.publish("orders", batch(b"c"))
        broker.maintenance.run_all()
    broker.delete_topic("orders")
    assert values_of(read) == [b"a", b"b"]


# By time


def test_offsets_are_found_by_time(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", partitions=2)
    for number in range(8):
        clock.step(10)
        broker.publish("orders", batch(b"%d" % number, b"x", partition=[number % 2, 0]))
    for number in range(8):
        time_us = START_US + (number + 1) * 10 * MICROSECONDS
        for asked in (time_us, time_us - 1, time_us - 10 * MICROSECONDS + 1):
            offset = broker.offset_at("orders", 0, asked)
            assert broker.fetch("orders", 0, offset).column("timestamp").cast("int64").to_pylist()[0] == time_us
        assert broker.offset_at("orders", 1, time_us) == number // 2
        assert broker.offsets_at("orders", time_us, np.arange(2)) == {  # type: ignore[arg-type]
            partition: broker.offset_at("orders", partition, time_us) for partition in (0, 1)
        }
    ends = {partition: end for partition, (_, end) in broker.offsets("orders").items()}
    assert broker.offsets_at("orders", clock.now_us() + 1) == ends
    assert broker.offsets_at("orders", clock.now_us() + 1, [1]) == {1: ends[1]}
    assert broker.offset_at("orders", 0, 0) == 0


def test_an_empty_partition_has_its_end_at_any_time(broker: Broker) -> None:
    broker.create_topic("orders")
    assert broker.offset_at("orders", 0, 0) == 0
    assert broker.offset_at("orders", 0, 2**63 - 1) == 0


# Waiting


def test_a_fetch_waits_for_the_first_message(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    waiting = Background(lambda: broker.fetch("orders", 1, 0, wait_seconds=60))
    until_waiting(broker, "orders")
    broker.publish("orders", batch(b"other", partition=0))
    assert not waiting.is_done
    broker.publish("orders", batch(b"a", b"b", partition=1))
    assert values_of(waiting.result()) == [b"a", b"b"]
    until_waiting(broker, "orders", readers=0)


def test_a_fetch_that_finds_something_does_not_wait(broker: Broker) -> None:
    fill(broker)
    assert broker.fetch("orders", 0, 19, wait_seconds=300).num_rows == 1


def test_a_fetch_that_waits_in_vain_comes_back_empty(broker: Broker) -> None:
    broker.create_topic("orders")
    read = broker.fetch("orders", 0, 0, wait_seconds=0.01)
    assert (read.num_rows, read.schema) == (0, READ_SCHEMA)


def check_calls(broker: Broker, calls: Sequence[object], count: int) -> None:
    """A watch is called so many times; where other servers write too, it may also be called for nothing."""
    if broker.store.signals is None:
        assert len(calls) == count
    else:
        assert len(calls) >= count


def test_waiting_readers_are_woken_only_for_their_partition(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("orders", partitions=2)
    topic = broker.topics.find("orders").topic
    reads: list[int] = []
    read = topic._read

    def counted(partition: int, offset: int, messages_max: int, bytes_max: int) -> pa.RecordBatch:
        reads.append(partition)
        return read(partition, offset, messages_max, bytes_max)

    monkeypatch.setattr(topic, "_read", counted)
    waiting = Background(lambda: broker.fetch("orders", 1, 0, wait_seconds=60))
    # Once at once, and once more when the watch is in place.
    eventually(lambda: len(reads) >= 2)
    for _ in range(20):
        broker.publish("orders", batch(b"a", partition=0))
    broker.publish("orders", batch(b"b", partition=1))
    assert values_of(waiting.result()) == [b"b"]
    check_calls(broker, reads, 3)


def test_many_readers_wait_for_one_message(broker: Broker) -> None:
    broker.create_topic("orders")
    readers = [Background(lambda: broker.fetch("orders", 0, 0, wait_seconds=60)) for _ in range(8)]
    until_waiting(broker, "orders", readers=8)
    broker.publish("orders", batch(b"a"))
    assert [values_of(reader.result()) for reader in readers] == [[b"a"]] * 8


def test_a_watch_is_called_for_its_partition_and_for_changes_of_the_topic(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    calls: list[str] = []
    with broker.reader("orders").watching(lambda: calls.append("woken"), 1):
        broker.publish("orders", batch(b"a", partition=0))
        check_calls(broker, calls, 0)
        broker.publish("orders", batch(b"b", partition=1))
        check_calls(broker, calls, 1)
        broker.alter_topic("orders", partitions=3)
        check_calls(broker, calls, 2)
    broker.publish("orders", batch(b"c", partition=1))
    check_calls(broker, calls, 2)


def test_a_watch_that_fails_is_no_failure_to_publish(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.create_topic("orders")
    calls: list[str] = []

    def fail() -> None:
        raise RuntimeError("the event loop is closed")

    reader = broker.reader("orders")
    with reader.watching(fail, 0), reader.watching(lambda: calls.append("woken"), 0):
        assert broker.publish("orders", batch(b"a")).written == 1
        check_calls(broker, calls, 1)
    assert "a watch failed" in caplog.text


def test_readers_follow_writers_without_missing_or_doubling(broker: Broker) -> None:
    broker.create_topic("orders")
    count = 200
    done = threading.Event()

    def follow() -> list[bytes]:
        read: list[bytes] = []
        while len(read) < count:
            read += values_of(broker.fetch("orders", 0, len(read), max_messages=7, wait_seconds=60))
        return read

    def write() -> list[bytes]:
        for number in range(count // 4):
            broker.publish("orders", batch(*[b"%d" % number] * 4))
        done.set()
        return []

    *reads, _ = together([follow, follow, follow, write])
    assert done.is_set()
    assert reads == [content(broker, "orders")[0]] * 3


def test_everything_reads_the_same_after_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=3)
    for number in range(12):
        durable_site.clock.step(1)
        broker.publish("orders", batch(b"%d" % number, b"x", b"y", key=[None, b"k", b"l"]))
    before = [broker.fetch("orders", partition, 0) for partition in range(3)]
    broker = durable_site.reopen(broker)
    assert [broker.fetch("orders", partition, 0) for partition in range(3)] == before


def test_everything_acknowledged_survives_a_crash(durable_site: Site, tmp_path: Path) -> None:
    broker = durable_site.open()
    values = fill(broker, commits=7, rows=2)
    after = durable_site.crashed(tmp_path / "after")
    repaired = after.open()
    assert content(repaired, "orders") == {0: values}
    repaired.publish("orders", batch(b"more"))
    assert content(repaired, "orders") == {0: [*values, b"more"]}
    after.close()

"""Followers that are handed what is written get what the log has, whatever else happens to the topic."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.broker.read.feed import FEED_COMMITS_MAX, HANDED_ROWS_MAX, Feed
from headrace.core.errors import OffsetOutOfRange, TopicDeleted
from tests.broker.sites import Site

LIMITS = 10_000, 1 << 20


@pytest.fixture
def disk_broker(disk_site: Site) -> Broker:
    """A broker whose store tells it nothing: in a shared one notifications of its own commits may come late."""
    return disk_site.open()


class Follower:
    """Follows all partitions of a topic as servers do, and knows how often it looked at the log."""

    def __init__(self, broker: Broker, feed: Feed, partitions: int) -> None:
        self._broker = broker
        self.feed = feed
        self.positions = dict.fromkeys(range(partitions), 0)
        self.seen: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(partitions)}
        self.looks = 0
        self._read_log, feed._read_log = feed._read_log, self._look

    def _look(self, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]:
        self.looks += 1
        return self._read_log(positions, messages_max, bytes_max)

    def read(self, messages_max: int = LIMITS[0]) -> int:
        """Read once; returns how many messages."""
        batches = self.feed.read(self.positions, messages_max, LIMITS[1])
        for batch in batches:
            for partition, offset, value in zip(
                *(batch.column(name).to_pylist() for name in ("partition", "offset", "value")), strict=True
            ):
                assert offset == self.positions[partition]
                self.positions[partition] = offset + 1
                self.seen[partition].append((offset, value))
        return sum(batch.num_rows for batch in batches)

    def catch_up(self) -> None:
        while self.read():
            pass


def publish(broker: Broker, values: list[str], partition: int | None = None) -> None:
    columns: dict[str, object] = {"value": values}
    if partition is not None:
        columns["partition"] = [partition] * len(values)
    broker.publish("t", pa.record_batch(columns))


def test_what_is_handed_is_what_the_log_has(broker: Broker) -> None:
    broker.create_topic("t", 3)
    draw, number = random.Random(7), 0
    with broker.reader("t").following() as feed:
        follower = Follower(broker, feed, 3)
        for _ in range(250):
            deed = draw.random()
            if deed < 0.7:
                rows = draw.choice([1, 1, 1, 2, 5, HANDED_ROWS_MAX + 1])
                partition = draw.choice([None, None, 0, 1, 2])
                publish(broker, [f"{number + row}" for row in range(rows)], partition)
                number += rows
            elif deed < 0.8:
                # Nothing that it has not read, which would be an error for it.
                broker.delete_messages("t", {0: follower.positions[0]})
            else:
                follower.read(draw.choice([1, 3, LIMITS[0]]))
        follower.catch_up()
        assert sum(map(len, follower.seen.values())) == number
        for partition, (start, end) in broker.offsets("t").items():
            assert [offset for offset, _ in follower.seen[partition]] == list(range(end))
            if start < end:
                kept = broker.fetch("t", partition, start, end - start)
                assert [value for _, value in follower.seen[partition][start:]] == kept.column("value").to_pylist()


def test_a_current_follower_does_not_look_at_the_log(disk_broker: Broker) -> None:
    disk_broker.create_topic("t", 1)
    publish(disk_broker, ["before"])
    with disk_broker.reader("t").following() as feed:
        follower = Follower(disk_broker, feed, 1)
        follower.catch_up()
        looks, read = follower.looks, disk_broker.reader("t")
        for number in range(20):
            publish(disk_broker, [f"{number}"])
            assert feed.changed.is_set()
            assert follower.read() == 1
        assert follower.looks == looks
        (batch,) = read.read({0: 20}, *LIMITS)
        publish(disk_broker, ["last"])
        handed = feed.read({0: 21}, *LIMITS)[0]
        assert handed.schema.equals(batch.schema)
        assert handed.equals(disk_broker.fetch("t", 0, 21))


def test_what_is_large_comes_from_the_log_and_then_small_ones_are_handed_again(disk_broker: Broker) -> None:
    disk_broker.create_topic("t", 1)
    with disk_broker.reader("t").following() as feed:
        follower = Follower(disk_broker, feed, 1)
        follower.catch_up()
        publish(disk_broker, ["x" * 20_000])
        publish(disk_broker, ["small"])
        follower.catch_up()
        looks = follower.looks
        publish(disk_broker, ["small"])
        assert follower.read() == 1
        assert follower.looks == looks


def test_a_slow_follower_holds_little_and_continues_from_the_log(disk_broker: Broker) -> None:
    disk_broker.create_topic("t", 1)
    with disk_broker.reader("t").following() as feed:
        follower = Follower(disk_broker, feed, 1)
        follower.catch_up()
        for number in range(FEED_COMMITS_MAX + 1):
            publish(disk_broker, [f"{number}"])
        assert not feed._waiting
        follower.catch_up()
        assert len(follower.seen[0]) == FEED_COMMITS_MAX + 1


def test_a_commit_that_nobody_handed_over_is_read_from_the_log(disk_broker: Broker) -> None:
    """As another server of the store writes one: its notification may come later."""
    disk_broker.create_topic("t", 1)
    reader = disk_broker.reader("t")
    with reader.following() as feed:
        follower = Follower(disk_broker, feed, 1)
        follower.catch_up()
        publish(disk_broker, ["0"])
        missed = feed._waiting.pop()
        publish(disk_broker, ["1"])
        follower.catch_up()
        assert [value for _, value in follower.seen[0]] == [b"0", b"1"]
        # What both have is not delivered twice, and partitions that nobody asked for not at all.
        follower.read()
        feed.put(missed)
        assert follower.read() == 0


def test_what_was_deleted_is_not_delivered_from_the_feed(broker: Broker) -> None:
    broker.create_topic("t", 1)
    with broker.reader("t").following() as feed:
        follower = Follower(broker, feed, 1)
        follower.catch_up()
        publish(broker, ["deleted"])
        publish(broker, ["kept"])
        broker.delete_messages("t", {0: 1})
        with pytest.raises(OffsetOutOfRange):
            follower.read()
        follower.positions[0] = 1
        follower.catch_up()
        assert follower.seen[0] == [(1, b"kept")]


def test_only_the_partitions_that_are_followed_are_delivered(broker: Broker) -> None:
    broker.create_topic("t", 2)
    with broker.reader("t").following() as feed:
        assert feed.read({1: 0}, *LIMITS) == []
        publish(broker, ["a", "b"])
        (batch,) = feed.read({1: 0}, *LIMITS)
        assert (batch.column("partition").to_pylist(), batch.column("value").to_pylist()) == ([1], [b"b"])


def test_the_end_of_a_topic_is_noticed(broker: Broker) -> None:
    broker.create_topic("t", 1)
    with broker.reader("t").following() as feed:
        assert feed.read({0: 0}, *LIMITS) == []
        feed.changed.clear()
        broker.delete_topic("t")
        assert feed.changed.is_set()
        with pytest.raises(TopicDeleted):
            feed.read({0: 0}, *LIMITS)


def test_handed_messages_are_counted_and_nothing_is_handed_after_the_end(broker: Broker) -> None:
    broker.create_topic("t", 1)
    reader = broker.reader("t")
    before = broker.counters["messages_read"]
    with reader.following() as feed:
        assert feed.read({0: 0}, *LIMITS) == []
        publish(broker, ["one"])
        assert len(feed.read({0: 0}, *LIMITS)) == 1
    assert broker.counters["messages_read"] == before + 1
    publish(broker, ["two"])
    assert not feed._waiting
    assert np.array_equal(list(broker.offsets("t")[0]), [0, 2])

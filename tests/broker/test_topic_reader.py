"""Readers of many partitions: every one has its turn, and a reader stays with its topic."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.errors import (
    InvalidInput,
    MemberNotFound,
    OffsetOutOfRange,
    PartitionNotFound,
    StaleGeneration,
    TopicDeleted,
)
from tests.broker.clock import SettableClock
from tests.broker.sites import Site


def publish(broker: Broker, partition: int, *values: str) -> None:
    broker.publish("t", pa.record_batch({"value": list(values), "partition": [partition] * len(values)}))


def values(batches: list[pa.RecordBatch]) -> list[str]:
    return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]


def test_each_partition_gets_its_share_and_what_is_left_over_is_used(broker: Broker) -> None:
    broker.create_topic("t", 3)
    publish(broker, 0, *["0"] * 50)
    publish(broker, 1, *["1"] * 50)
    publish(broker, 2, "2")
    found = values(broker.reader("t").read({0: 0, 1: 0, 2: 0}, 31, 1 << 20))
    assert (len(found), found.count("2")) == (31, 1)
    assert min(found.count("0"), found.count("1")) >= 10


def test_the_oldest_message_comes_first_when_there_is_room_for_one(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("t", 3)
    for partition in (2, 0, 1):
        publish(broker, partition, str(partition))
        clock.step(1)
    reader, positions, found = broker.reader("t"), {0: 0, 1: 0, 2: 0}, []
    for _ in range(3):
        (batch,) = reader.read(positions, 1, 1 << 20)
        found += values([batch])
        positions[batch.column("partition")[0].as_py()] += 1
    assert found == ["2", "0", "1"]
    assert reader.read(positions, 1, 1 << 20) == []
    assert not reader.is_behind(positions)


def test_large_messages_share_the_bytes(broker: Broker) -> None:
    broker.create_topic("t", 2)
    publish(broker, 0, *["x" * 1000] * 10)
    publish(broker, 1, *["y" * 1000] * 10)
    batches = broker.reader("t").read({0: 0, 1: 0}, 100, 8_000)
    assert {batch.column("partition")[0].as_py() for batch in batches} == {0, 1}
    assert sum(batch.num_rows for batch in batches) < 16
    assert len(values(broker.reader("t").read({0: 0, 1: 0}, 100, 1))) == 1


def test_positions_that_cannot_be_are_refused(broker: Broker) -> None:
    broker.create_topic("t")
    reader = broker.reader("t")
    with pytest.raises(OffsetOutOfRange):
        reader.read({0: 1}, 1, 1)
    with pytest.raises(PartitionNotFound):
        reader.read({1: 0}, 1, 1)
    with pytest.raises(PartitionNotFound):
        reader.positions_at("latest", [0, 1])
    with pytest.raises(OffsetOutOfRange):
        reader.check_reached({0: 1})
    with pytest.raises(InvalidInput):
        reader.read({0: 0}, 0, 1)
    with pytest.raises(InvalidInput):
        reader.positions_at(-1)


def test_places_are_found_for_all_partitions_or_some(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("t", 2)
    publish(broker, 0, "a")
    clock.step(10)
    between_us = clock.now_us() - 5_000_000
    publish(broker, 0, "b")
    reader = broker.reader("t")
    assert reader.positions_at("earliest") == {0: 0, 1: 0}
    assert reader.positions_at("latest") == {0: 2, 1: 0}
    assert reader.positions_at(between_us, [0]) == {0: 1}


def test_a_reader_stays_with_its_topic(broker: Broker) -> None:
    broker.create_topic("t")
    reader = broker.reader("t")
    broker.delete_topic("t")
    broker.create_topic("t")
    publish(broker, 0, "of another")
    assert reader.topic_id != broker.reader("t").topic_id
    for use in (reader.offsets, lambda: reader.read({0: 0}, 1, 1), lambda: reader.is_behind({0: 0})):
        with pytest.raises(TopicDeleted):
            use()


def test_a_watch_is_called_for_any_partition_until_it_is_given_up(broker: Broker) -> None:
    broker.create_topic("t", 2)
    calls: list[int] = []
    with broker.reader("t").watching(lambda: calls.append(1)):
        publish(broker, 1, "a")
        assert calls
        count = len(calls)
    publish(broker, 0, "b")
    assert len(calls) == count


def test_a_member_reads_its_own_and_stays_by_reading(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("t", 2)
    publish(broker, 0, "a", "b")
    publish(broker, 1, "c")
    broker.join_group("t", "g", "me", 10)
    reader = broker.reader("t")
    for _ in range(5):
        clock.step(6)
        found = reader.read_as_member("g", "me", None, {}, 10, 1 << 20)
    assert sorted(values(found.batches)) == ["a", "b", "c"]
    assert found.positions == {0: 2, 1: 1}
    assert 0 < found.renew_seconds < 10
    given = reader.read_as_member("g", "me", found.generation, {0: 1, 1: 1}, 10, 1 << 20)
    assert values(given.batches) == ["b"]
    broker.join_group("t", "g", "other", 10)
    with pytest.raises(StaleGeneration):
        reader.read_as_member("g", "me", found.generation, {}, 10, 1 << 20)
    assert broker.heartbeat("t", "g", "me").revoking == [1], "nothing was let go by what was refused"
    assert broker.commit_offsets("t", "g", {0: 2, 1: 1}, "me", found.generation).refused == []
    publish(broker, 0, "d")
    publish(broker, 1, "e")
    after = reader.read_as_member("g", "me", None, {0: 2, 1: 1}, 10, 1 << 20)
    assert (values(after.batches), after.positions) == (["d"], {0: 3})
    other = reader.read_as_member("g", "other", None, {}, 10, 1 << 20)
    assert (values(other.batches), other.positions) == (["e"], {1: 2})
    with pytest.raises(StaleGeneration):
        broker.seek("t", "g", {0: 0})
        reader.read_as_member("g", "me", after.generation, {0: 3}, 10, 1 << 20)
    clock.step(11)
    with pytest.raises(MemberNotFound):
        reader.read_as_member("g", "me", None, {}, 10, 1 << 20)


def test_how_far_bytes_reach_is_known_without_reading(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = site.open()
    broker.create_topic("t", 3)
    for _ in range(30):
        publish(broker, 0, *["x" * 10_000] * 4)
        publish(broker, 1, *["y" * 10_000] * 2)
    log = broker.topics.find("t").topic.log
    for name in ("read", "read_many", "read_ranges"):
        monkeypatch.setattr(log, name, None)
    found = broker.offsets_within("t", {0: (0, 120, 500_000), 1: (20, 60, 200_000), 2: (0, 9, 1)})
    assert 30 <= found[0] <= 60 and 30 <= found[1] <= 50 and found[2] == 0
    assert broker.offsets_within("t", {0: (5, 120, 1 << 40), 1: (60, 60, 1)}) == {0: 120, 1: 60}
    assert broker.offsets_within("t", {}) == {}
    for partition in (3, -1):
        with pytest.raises(PartitionNotFound):
            broker.offsets_within("t", {partition: (0, 1, 1)})

"""Reading many partitions at once gives what reading each of them gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.core.errors import OffsetOutOfRange
from headrace.core.messages import content_bytes
from headrace.storage.disk.files.segment import file_name
from headrace.storage.interface import TopicLog
from tests.group_writes import put_offsets
from tests.postgres_server import PostgresServer
from tests.storage.builders import (
    EVERYTHING,
    NOW_US,
    DiskPlace,
    MemoryPlace,
    Place,
    PostgresPlace,
    Topic,
    batch_of,
    values,
)
from tests.storage.disk.builders import DiskTopic, flip, frame_positions

PARTITIONS = 8


@pytest.fixture(params=["memory", "disk", "disk in one segment", "killed", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found: Place
    if request.param == "memory":
        found = MemoryPlace()
    elif request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        found = PostgresPlace(server.fresh_url("segment_commits=3"))
    elif request.param == "disk in one segment":
        found = DiskPlace(tmp_path / "store", options="durability=os")
    else:
        found = DiskPlace(tmp_path / "store", killed=request.param == "killed")
    yield found
    found.close()


def filled(place: Place, seed: int) -> Topic:
    """Commits of any size over any of the partitions, with values of any length; some partitions have none."""
    chance = random.Random(seed)
    topic = Topic(place, partitions=PARTITIONS)
    for number in range(20):
        rows = [
            {
                "value": b"%d-%d" % (number, row) + b"x" * chance.choice([0, 10, 500]),
                "partition": chance.randrange(PARTITIONS - 2),
            }
            for row in range(chance.choice([1, 3, 40, 100]))
        ]
        if chance.random() < 0.5:
            rows = [{**row, "key": b"k"} for row in rows]
        topic.publish(batch_of(rows), now_us=NOW_US + number)
    return topic


def check_round(log: TopicLog, positions: dict[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]:
    """One read of many, compared with reads of each."""
    batches = log.read_many(positions, messages_max, bytes_max)
    ends = log.offsets().end
    behind = [partition for partition, offset in positions.items() if offset < ends[partition]]
    assert bool(batches) == bool(behind)
    seen: list[int] = []
    for batch in batches:
        (partition,) = set(batch.column("partition").to_pylist())
        alone = log.read(partition, positions[partition], batch.num_rows, EVERYTHING)
        assert batch.equals(alone)
        batch.validate(full=True)
        seen.append(partition)
    assert len(seen) == len(set(seen))
    firsts = [batch.column("timestamp")[0].as_py() for batch in batches]
    assert firsts == sorted(firsts)
    assert sum(batch.num_rows for batch in batches) <= messages_max
    assert len(batches) <= 1 or sum(map(content_bytes, batches)) <= bytes_max
    if messages_max >= len(positions) and bytes_max >= 1 << 20:
        assert sorted(seen) == sorted(behind)
    return batches


@pytest.mark.parametrize("seed", range(3))
def test_every_message_comes_once_and_in_order(place: Place, seed: int) -> None:
    topic = filled(place, seed)
    place.reopen()
    topic.publish(values(b"newest", partition=3), now_us=NOW_US + 100)
    positions = dict.fromkeys(range(PARTITIONS), 0)
    chance = random.Random(seed)
    while True:
        limits = chance.choice([(10_000, 1 << 20), (40, 1 << 20), (7, 1 << 20), (10_000, 3000), (1, 1)])
        batches = check_round(topic.log, positions, *limits)
        if not batches:
            break
        for batch in batches:
            positions[batch.column("partition")[0].as_py()] += batch.num_rows
    assert list(positions.values()) == topic.log.offsets().end.tolist()


def test_a_position_out_of_range_is_reported(place: Place) -> None:
    topic = filled(place, 0)
    with pytest.raises(OffsetOutOfRange):
        topic.log.read_many({0: 0, 1: 10_000}, 10, 1 << 20)


def test_what_is_damaged_is_left_out_and_the_rest_is_read(tmp_path: Path) -> None:
    topic = DiskTopic(tmp_path / "store", partitions=3)
    for number in range(6):
        topic.publish(batch_of([{"value": b"%d" % number, "partition": partition} for partition in range(3)]))
    topic.publish(values(b"last", partition=1))
    topic.close()
    first = topic.directory / file_name(0, "log")
    flip(first, frame_positions(first)[1] + 70)
    log = topic.open()
    batches = log.read_many({0: 0, 1: 2, 2: 1}, 1000, 1 << 20)
    assert [batch.column("value").to_pylist() for batch in batches] == [[b"0"], [b"2", b"3", b"4", b"5", b"last"]]
    assert log.read_many({2: 1}, 1000, 1 << 20) == []
    topic.close()


def test_a_gap_ends_what_is_read(tmp_path: Path) -> None:
    topic = DiskTopic(tmp_path / "store", partitions=2)
    topic.publish(values(b"0"), values(b"1"))
    put_offsets(topic.store.catalog, topic.record.id, "g", {0: 7})
    log = topic.reopen()
    topic.publish(batch_of([{"value": b"7", "partition": 0}, {"value": b"x", "partition": 1}]))
    found = {batch.column("offset")[0].as_py(): batch.num_rows for batch in log.read_many({0: 0, 1: 0}, 10, 1 << 20)}
    assert found == {0: 1} or sum(found.values()) == 3
    with pytest.raises(OffsetOutOfRange):
        log.read_many({0: 3}, 10, 1 << 20)
    topic.close()


def test_a_segment_that_goes_meanwhile_gives_nothing(tmp_path: Path) -> None:
    topic = DiskTopic(tmp_path / "store", partitions=2)
    for number in range(8):
        topic.publish(values(b"%d" % number))
    log = topic.reopen()
    topic.paths()[0].unlink()
    assert log.read_many({0: 0}, 10, 1 << 20) == []
    assert log.read_many({1: 0}, 10, 1 << 20) == []

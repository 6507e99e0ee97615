"""Reading ranges of many partitions at once gives what reading each of them gives, in the order written."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.hashes.columns import Int64s
from headrace.core.messages import content_bytes
from headrace.storage.disk.files.segment import file_name
from headrace.storage.interface import TopicLog
from tests.group_writes import put_offsets
from tests.storage.builders import EVERYTHING, NOW_US, DiskPlace, MemoryPlace, Place, PostgresPlace, batch_of, values
from tests.storage.disk.builders import DiskTopic, flip, frame_positions
from tests.storage.test_read_many import PARTITIONS, filled

LIMITS = ((10_000, 1 << 20), (40, 1 << 20), (7, 1 << 20), (10_000, 3000), (1, 1))


def ranges_of(log: TopicLog, chance: random.Random) -> tuple[Int64s, Int64s]:
    """Any part of each partition, of some nothing."""
    ends = log.offsets().end
    stop = np.array([chance.randint(0, end) for end in ends.tolist()], np.int64)
    return np.array([chance.randint(0, end) for end in stop.tolist()], np.int64), stop


def check_rows(log: TopicLog, batch: pa.RecordBatch, start: Int64s) -> None:
    """Compare a batch with reads of each partition."""
    batch.validate(full=True)
    partitions = batch.column("partition").to_numpy()
    for partition in np.unique(partitions).tolist():
        rows = batch.filter(pa.array(partitions == partition))
        alone = log.read(partition, int(start[partition]), rows.num_rows, EVERYTHING)
        assert rows.equals(alone)
    times = batch.column("timestamp").to_pylist()
    assert times == sorted(times)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", ["", "durability=os"])
def test_every_message_comes_once_and_in_order(tmp_path: Path, seed: int, options: str) -> None:
    place = DiskPlace(tmp_path / "store", options=options) if options else DiskPlace(tmp_path / "store")
    topic, chance = filled(place, seed), random.Random(seed)
    place.reopen()
    topic.publish(values(b"newest", partition=3), now_us=NOW_US + 100)
    start, stop = ranges_of(topic.log, chance)
    while np.any(start < stop):
        messages_max, bytes_max = chance.choice(LIMITS)
        batch = topic.log.read_ranges(start, stop, messages_max, bytes_max)
        assert batch is not None
        assert 1 <= batch.num_rows <= messages_max
        assert batch.num_rows == 1 or content_bytes(batch) <= bytes_max
        check_rows(topic.log, batch, start)
        start[batch.column("partition").to_numpy()] = batch.column("offset").to_numpy() + 1
    assert topic.log.read_ranges(start, stop, 10, 1 << 20) is None
    place.close()


def test_partitions_that_are_added_meanwhile_are_not_read(tmp_path: Path) -> None:
    topic = DiskTopic(tmp_path / "store", partitions=2)
    topic.publish(values(b"0"))
    topic.log.add_partitions(3)
    topic.publish(values(b"new", partition=2))
    batch = topic.log.read_ranges(np.zeros(2, np.int64), np.array([1, 0]), 10, 1 << 20)
    assert batch is not None
    assert batch.column("value").to_pylist() == [b"0"]
    topic.close()


def test_what_is_damaged_or_missing_is_left_to_reads_of_each_partition(tmp_path: Path) -> None:
    topic = DiskTopic(tmp_path / "store", partitions=3)
    for number in range(6):
        topic.publish(batch_of([{"value": b"%d" % number, "partition": partition} for partition in range(3)]))
    topic.close()
    first = topic.directory / file_name(0, "log")
    flip(first, frame_positions(first)[1] + 70)
    log = topic.open()
    ends = log.offsets().end
    assert log.read_ranges(np.zeros(3, np.int64), ends, 1000, 1 << 20) is None
    # Where the damage is not in the ranges, it does not matter.
    batch = log.read_ranges(np.full(3, 2), ends, 1000, 1 << 20)
    assert batch is not None
    assert batch.num_rows == 12
    # Nor can be read what is beyond the end.
    assert log.read_ranges(np.full(3, 2), ends + 1, 1000, 1 << 20) is None
    topic.close()


def test_a_hole_is_left_to_reads_of_each_partition(tmp_path: Path) -> None:
    topic = DiskTopic(tmp_path / "store", partitions=2)
    topic.publish(values(b"0"), values(b"1"))
    put_offsets(topic.store.catalog, topic.record.id, "g", {0: 7})
    log = topic.reopen()
    topic.publish(values(b"7"))
    assert log.read_ranges(np.zeros(2, np.int64), log.offsets().end, 10, 1 << 20) is None
    topic.close()


def test_a_segment_that_goes_meanwhile_is_left_to_reads_of_each_partition(tmp_path: Path) -> None:
    topic = DiskTopic(tmp_path / "store", partitions=2)
    for number in range(8):
        topic.publish(values(b"%d" % number))
    log = topic.reopen()
    topic.paths()[0].unlink()
    assert log.read_ranges(np.zeros(2, np.int64), log.offsets().end, 10, 1 << 20) is None
    topic.close()


@pytest.mark.parametrize("engine", ["memory", "postgres"])
def test_an_engine_may_have_no_way_to_do_it(engine: str, request: pytest.FixtureRequest) -> None:
    place: Place = (
        MemoryPlace() if engine == "memory" else PostgresPlace(request.getfixturevalue("postgres").fresh_url())
    )
    log = filled(place, 0).log
    assert log.read_ranges(np.zeros(PARTITIONS, np.int64), log.offsets().end, 10, 1 << 20) is None
    place.close()

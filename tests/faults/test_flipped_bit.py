"""A bit on the disk is not what was written: in a frame, a segment header, an index or a snapshot.

Bits are flipped in every field and every buffer. Nothing wrong is ever read: the messages in the damaged place raise
an error that names the file, all others stay readable, and publishing goes on behind them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.core.errors import Damaged
from headrace.storage.catalog import TopicRecord
from headrace.storage.disk.files import frame
from headrace.storage.disk.log import DiskLog
from tests.faults.invariants import Message, Place
from tests.faults.logs import Prepared, append, opened_log, prepare, read_one, read_rows, topic_of
from tests.faults.test_torn_tail import frames_of

PARTITIONS = 3


def commits() -> list[list[Message]]:
    """Eleven commits to two of three partitions each: four, four and three in a segment."""
    return [
        [Message(b"v%d-%d" % (n, p), b"k%d" % n, "a", "g", 3 * n + p, p) for p in range(PARTITIONS) if (n + p) % 3]
        for n in range(11)
    ]


@pytest.fixture(params=[True, False], ids=["closed", "crashed"])
def is_closed(request: pytest.FixtureRequest) -> bool:
    """Whether the store was closed, so that the newest segment has an index, or its process died."""
    return bool(request.param)


@pytest.fixture
def prepared(place: Path, is_closed: bool) -> Prepared:
    prepared = prepare(place / "store", PARTITIONS, commits(), is_closed)
    assert [len(frames_of(log)) for log in prepared.logs] == [4, 4, 3]
    return prepared


@contextmanager
def flipped(path: Path, position: int) -> Iterator[None]:
    """Flip a bit for a while; then all files of the topic are as they were."""
    files = {each: each.read_bytes() for each in path.parent.iterdir()}
    data = bytearray(files[path])
    data[position] ^= 1 << (position % 8)
    path.write_bytes(data)
    yield
    for each in path.parent.iterdir():
        if each not in files:
            each.unlink()
    for each, content in files.items():
        each.write_bytes(content)


@dataclass(frozen=True)
class Region:
    """A part of a frame."""

    name: str
    start: int
    end: int


def regions(header: frame.Header) -> list[Region]:
    """The parts of a frame in order: the fields of its header, and what follows."""
    fields = [("magic", 4), ("checksum", 4), ("version", 2), ("flags", 2), ("columns", 4), ("bytes", 8), ("number", 8)]
    fields += [("time", 8), ("round robin", 8), ("rows", 4), ("entries", 4), ("key bytes", 4), ("body bytes", 4)]
    fields += [("directory", 16 * header.entries), ("keys", header.key_bytes)]
    fields += [("padding", header.body - sum(length for _, length in fields)), ("body", header.body_bytes)]
    fields += [("last padding", header.bytes - header.body - header.body_bytes)]
    starts = [sum(length for _, length in fields[:place]) for place in range(len(fields))]
    return [Region(name, start, start + length) for (name, length), start in zip(fields, starts, strict=True)]


def positions(header: frame.Header) -> Iterator[int]:
    """Every byte of header, directory and keys, and every seventh of the rest: no buffer there has fewer than eight."""
    for region in regions(header):
        yield from range(region.start, region.end, 7 if region.name in ("padding", "body", "last padding") else 1)


def places_of(prepared: Prepared, number: int) -> set[Place]:
    """Where the messages of a commit are."""
    return {place for place, message in prepared.messages.items() if message.value.startswith(b"v%d-" % number)}


def check_damage(log: DiskLog, prepared: Prepared, lost: set[Place], path: Path) -> None:
    """The lost messages raise an error that names the file, and all others are read."""
    for place in lost:
        found = read_one(log, place)
        assert isinstance(found, Damaged), f"{place} was read as {found!r}"
        assert found.file == str(path)
    read = {place: value for partition in range(PARTITIONS) for place, value in read_on(log, prepared, partition)}
    assert read == {place: message.value for place, message in prepared.messages.items() if place not in lost}


def read_on(log: DiskLog, prepared: Prepared, partition: int) -> Iterator[tuple[Place, bytes]]:
    """Everything that can be read of a partition, up to each damaged place and from the one after it."""
    offset, end = 0, prepared.ends()[partition]
    while offset < end:
        try:
            rows = read_rows(log, partition, offset)
        except Damaged:
            offset += 1
            continue
        for number, value in rows:
            assert number == offset
            yield (partition, offset), value
            offset += 1


def check_going_on(log: DiskLog, prepared: Prepared, topic: TopicRecord, exact: bool) -> None:
    """New messages come behind all that were ever acknowledged, and can be read."""
    for partition, end in prepared.ends().items():
        offset = append(log, topic, b"new", partition)
        assert offset >= end
        assert offset == end or not exact
        assert read_one(log, (partition, offset)) == b"new"


@pytest.mark.parametrize(
    ("number", "is_closed"),
    [(4, True), (6, True), (7, False), (8, False), (9, True), (9, False), (10, True)],
    ids=lambda value: {True: "closed", False: "crashed"}[value] if isinstance(value, bool) else str(value),
)
def test_flipped_bit_in_a_frame(prepared: Prepared, is_closed: bool, number: int) -> None:
    """The last frame of a store that was not closed is not among these: it cannot be told from a torn one."""
    path = prepared.logs[number // 4]
    if number == 6:
        path.with_suffix(".index").unlink()
    start, header = frames_of(path)[number % 4]
    lost = places_of(prepared, number)
    # Only in the tail of a store that was not closed does nothing else say where the damaged messages were.
    exact = is_closed or number < 8
    with topic_of(prepared) as (store, topic):
        for position in positions(header):
            with flipped(path, start + position), opened_log(store, topic) as log:
                check_damage(log, prepared, lost, path)
                if position % 4 == 0:
                    check_going_on(log, prepared, topic, exact)


def test_flipped_bit_in_the_last_frame_of_a_crashed_store_is_a_torn_tail(place: Path) -> None:
    prepared = prepare(place / "store", PARTITIONS, commits(), closed=False)
    path = prepared.logs[-1]
    start, header = frames_of(path)[-1]
    lost = places_of(prepared, 10)
    with topic_of(prepared) as (store, topic):
        for position in positions(header):
            with flipped(path, start + position), opened_log(store, topic) as log:
                for at, message in prepared.messages.items():
                    assert at[1] == log.offsets().end[at[0]] if at in lost else read_one(log, at) == message.value


@pytest.mark.parametrize("number", [10, 11, 12])
def test_flipped_bit_in_a_frame_of_a_large_commit(place: Path, number: int) -> None:
    large = [[Message(b"v%d-%d" % (n, p), partition=p) for n in (10, 11, 12) for p in (0, 1)]]
    prepared = prepare(place / "store", PARTITIONS, commits()[:10] + large, closed=True, frame_rows=2)
    path = prepared.logs[-1]
    start, header = frames_of(path)[number - 8]
    assert header.continues == (number < 12)
    with topic_of(prepared) as (store, topic):
        for position in range(0, header.bytes, 7):
            with flipped(path, start + position), opened_log(store, topic) as log:
                check_damage(log, prepared, places_of(prepared, number), path)
                if position % 2 == 0:
                    check_going_on(log, prepared, topic, exact=True)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_flipped_bit_in_a_segment_header(prepared: Prepared, number: int) -> None:
    path = prepared.logs[number]
    with topic_of(prepared) as (store, topic):
        for position in range(frames_of(path)[0][0]):
            with flipped(path, position), opened_log(store, topic) as log:
                assert [damaged.file for damaged in log.damage] == [str(path)]
                check_damage(log, prepared, set(), path)
                check_going_on(log, prepared, topic, exact=True)


def test_flipped_bit_in_an_index(prepared: Prepared) -> None:
    for path in sorted(prepared.topic.glob("*.index")):
        with topic_of(prepared) as (store, topic):
            for position in range(0, path.stat().st_size, 5):
                with flipped(path, position), opened_log(store, topic) as log:
                    check_damage(log, prepared, set(), path)
                    if position % 2 == 0:
                        check_going_on(log, prepared, topic, exact=True)


def test_flipped_bit_in_a_snapshot(prepared: Prepared) -> None:
    paths = sorted(prepared.topic.glob("*.state"))
    assert len(paths) == 2
    for path in paths:
        with topic_of(prepared) as (store, topic):
            for position in range(0, path.stat().st_size, 7):
                with flipped(path, position), opened_log(store, topic) as log:
                    is_newest = path == paths[-1]
                    assert [damaged.file for damaged in log.damage] == [str(path)] * is_newest
                    assert log.state.sources.last_seqno(("a", "g")) == 31
                    assert log.state.next_number == 11
                    check_going_on(log, prepared, topic, exact=True)

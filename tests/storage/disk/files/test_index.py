"""The index: growing, sealed and brute force agree on every lookup."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.publish.state import Directory
from headrace.storage.disk.files import index as index_module
from headrace.storage.disk.files.frame import Header
from headrace.storage.disk.files.index import FrameRun, GrowingIndex, Index, SealedIndex, end_offsets

PARTITIONS = 5


@dataclass(frozen=True)
class Entry:
    """One partition's rows in one frame, as brute force knows them."""

    partition: int
    first_offset: int
    frame: int
    first_row: int
    rows: int


# A frame is a dictionary from partition to rows; `None` is a frame that is lost, of which only the rows are known.
Frames = list[tuple[dict[int, int], bool]]
FRAMES = st.lists(
    st.tuples(st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(1, 4), max_size=PARTITIONS), st.booleans()),
    max_size=12,
)


def header_of(number: int, rows: int, length: int) -> Header:
    return Header(0, 1, 0, 1, length, number, 100 + 10 * (number // 2), 0, rows, 0, 0, length - 64, 64)


def build(frames: Frames, damaged: bool = False) -> tuple[GrowingIndex, list[Entry]]:
    """An index of the frames and its entries in the order written; lost frames are left out if `damaged`."""
    index = GrowingIndex()
    entries: list[Entry] = []
    ends = [0] * PARTITIONS
    position = 64
    for number, (rows, is_lost) in enumerate(frames):
        partitions = sorted(rows)
        counts = np.array([rows[partition] for partition in partitions], np.int64)
        offsets = np.array([ends[partition] for partition in partitions], np.int64)
        directory = Directory(np.array(partitions, np.int32), offsets, counts)
        if not (damaged and is_lost):
            frame = index.frame_count
            index.append(position, header_of(number, int(counts.sum()), 128), directory)
            entries += [
                Entry(partition, ends[partition], frame, int(first_row), rows[partition])
                for partition, first_row in zip(partitions, directory.first_row, strict=True)
            ]
        for partition in partitions:
            ends[partition] += rows[partition]
        position += 128
    return index, entries


def sealed_of(index: GrowingIndex) -> SealedIndex:
    sealed = SealedIndex.decode(memoryview(b"".join(index.encode())))
    assert sealed is not None
    return sealed


def entries_of(run: FrameRun, partition: int) -> list[Entry]:
    columns = (run.first_offset, run.frame, run.first_row, run.rows)
    assert len(run) == len(run.rows)
    return [
        Entry(partition, offset, frame, first_row, rows)
        for offset, frame, first_row, rows in zip(*(column.tolist() for column in columns), strict=True)
    ]


def expected_run(entries: Sequence[Entry], partition: int, offset: int) -> list[Entry]:
    """The last entry that begins at or before the offset, and all after it; all if there is none."""
    own = [entry for entry in entries if entry.partition == partition]
    before = sum(entry.first_offset <= offset for entry in own)
    return own[max(0, before - 1) :]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A growing index is searched in steps; small ones meet every case with few entries."""
    monkeypatch.setattr(index_module, "_STEP", 3)


@settings(deadline=None)
@given(frames=FRAMES, damaged=st.booleans())
def test_growing_and_sealed_find_what_brute_force_finds(frames: Frames, damaged: bool) -> None:
    growing, entries = build(frames, damaged)
    indexes: list[Index] = [growing, sealed_of(growing)]
    highest = max([entry.first_offset + entry.rows for entry in entries], default=0)
    for index in indexes:
        for partition in range(PARTITIONS + 1):
            for offset in range(-1, highest + 2):
                run = index.run(partition, offset)
                assert entries_of(run, partition) == expected_run(entries, partition, offset)
                holds = any(
                    entry.partition == partition and entry.first_offset <= offset < entry.first_offset + entry.rows
                    for entry in entries
                )
                assert run.begins_with(offset) == holds
            for frame in range(len(frames) + 2):
                expected = [entry for entry in entries if entry.partition == partition and entry.frame >= frame]
                assert entries_of(index.run_from_frame(partition, frame), partition) == expected


@settings(deadline=None)
@given(frames=FRAMES)
def test_sealing_keeps_the_frames(frames: Frames) -> None:
    growing, _ = build(frames)
    sealed = sealed_of(growing)
    assert growing.frame_count == len(frames)
    assert sealed.covered_bytes == growing.covered_bytes == (64 + 128 * len(frames) if frames else 0)
    for name, column in growing.frames.items():
        assert sealed.frames[name].tolist() == column.tolist()
        assert sealed.frames[name].dtype == column.dtype


@settings(deadline=None)
@given(frames=FRAMES, cut=st.integers(0, 12))
def test_ends_are_the_highest_that_any_index_knows(frames: Frames, cut: int) -> None:
    _, entries = build(frames)
    base = np.array([3, 1], np.int64)
    known = end_offsets(base, [build(frames[:cut])[0], sealed_of(build(frames)[0])]).tolist()
    for partition, end in enumerate(known):
        own = [entry.first_offset + entry.rows for entry in entries if entry.partition == partition]
        assert end == max([*own, *base[partition : partition + 1].tolist()], default=0)
    assert len(known) == max([2, *(entry.partition + 1 for entry in entries)])


def test_the_first_entries_of_a_run_are_a_run() -> None:
    index, entries = build([({0: 2}, False), ({0: 3}, False), ({0: 1}, False)])
    run = index.run(0, 0)
    assert entries_of(run.first(2), 0) == entries[:2]
    assert entries_of(run.first(10), 0) == entries
    assert not run.first(0).begins_with(0)


def test_a_reader_keeps_what_it_saw_while_the_index_grows() -> None:
    index, _ = build([({0: 1}, False)])
    frames, run = index.frames, index.run(0, 0)
    for number in range(1, 300):
        directory = Directory(np.array([0], np.int32), np.array([number]), np.array([1]))
        index.append(64 + 128 * number, header_of(number, 1, 128), directory)
    assert (len(frames["rows"]), len(run)) == (1, 1)
    assert len(index.frames["rows"]) == 300
    assert index.run(0, 0).first_offset.tolist() == list(range(300))


def test_the_layout_is_the_one_of_the_format() -> None:
    index, _ = build([({1: 2, 3: 1}, False), ({0: 4}, False)])
    data = b"".join(index.encode())
    magic, _, version, unused, frames, entries, covered = struct.unpack_from("<4sIIIQQQ", data)
    assert (magic, version, unused, frames, entries, covered) == (b"HRix", 1, 0, 2, 3, 320)
    assert struct.unpack_from("<qq", data, 40) == (64, 192)
    # After two frames of 2 * 8 + 5 * 4 bytes come the entries, sorted by partition.
    assert struct.unpack_from("<qqq", data, 40 + 2 * 36) == (0, 0, 0)
    assert struct.unpack_from("<III", data, 40 + 2 * 36 + 24) == (0, 1, 3)


@pytest.mark.parametrize("place", [0, 4, 8, 12, 16, 24, 32, 40, -1])
def test_a_changed_byte_makes_it_no_index(place: int) -> None:
    data = bytearray(b"".join(build([({0: 1}, False)])[0].encode()))
    data[place] ^= 1
    assert SealedIndex.decode(memoryview(data)) is None


def test_less_than_an_index_is_none() -> None:
    data = b"".join(build([({0: 1}, False)])[0].encode())
    for length in (0, 39, 40, len(data) - 1):
        assert SealedIndex.decode(memoryview(data)[:length]) is None

"""Walking through frames: a torn tail is cut, damage is told."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from headrace.core.publish.state import TopicState
from headrace.storage.disk.files import frame
from headrace.storage.disk.opening.scan import Hole, Scanned, scan
from tests.storage.builders import commit_of, values

START = 64


@dataclass(frozen=True)
class Written:
    """A file with frames in it."""

    data: bytes
    positions: list[int]

    def scan(self, data: bytes | None = None, complete_bytes: int = 0) -> Scanned:
        return scan(memoryview(self.data if data is None else data), START, 1, "file", complete_bytes)

    def damaged(self, *frames: int) -> bytes:
        data = bytearray(self.data)
        for number in frames:
            data[self.positions[number] + 20] ^= 1
        return bytes(data)


def written(*continues: bool) -> Written:
    """A frame for each argument, which says whether the next one belongs to the same commit."""
    state = TopicState(np.zeros(1, np.int64))
    data = bytes(START)
    positions = []
    for number, is_continued in enumerate(continues):
        commit = replace(commit_of([values(b"%d" % number * 50)], state)[0][0], continues=is_continued)
        state.apply(commit)
        positions.append(len(data))
        data += b"".join(bytes(part) for part in frame.encode(commit, 1, len(data))[1])
    return Written(data, positions)


def found(scanned: Scanned) -> list[int]:
    return [position for position, _ in scanned.frames]


def test_all_frames_are_found() -> None:
    file = written(False, False, False)
    scanned = file.scan()
    assert (found(scanned), scanned.holes, scanned.end) == (file.positions, [], len(file.data))
    assert scanned.last_commit == file.positions[2]
    assert [header.number for _, header in scanned.frames] == [0, 1, 2]


def test_a_file_without_frames_ends_where_they_would_begin() -> None:
    scanned = scan(memoryview(bytes(START)), START, 1, "file")
    assert (scanned.frames, scanned.holes, scanned.end, scanned.last_commit) == ([], [], START, START)


@pytest.mark.parametrize("length", [1, 63, 64, 100])
def test_a_part_of_a_frame_at_the_end_is_a_torn_tail(length: int) -> None:
    file = written(False, False, False)
    scanned = file.scan(file.data[: file.positions[2] + length])
    assert (found(scanned), scanned.holes, scanned.end) == (file.positions[:2], [], file.positions[2])


def test_rubbish_at_the_end_is_a_torn_tail() -> None:
    file = written(False)
    scanned = file.scan(file.data + frame.MAGIC * 100)
    assert (found(scanned), scanned.end) == (file.positions, len(file.data))


def test_a_broken_last_frame_is_a_torn_tail_unless_it_is_known_to_have_been_whole() -> None:
    file = written(False, False)
    torn = file.scan(file.damaged(1))
    assert (found(torn), torn.holes, torn.end) == (file.positions[:1], [], file.positions[1])
    hurt = file.scan(file.damaged(1), complete_bytes=len(file.data))
    assert (found(hurt), hurt.end) == (file.positions[:1], len(file.data))
    assert hurt.holes == [Hole(file.positions[1], len(file.data))]


def test_a_broken_frame_with_others_behind_it_is_damage() -> None:
    file = written(False, False, False, False, False)
    scanned = file.scan(file.damaged(0, 2, 3))
    assert found(scanned) == [file.positions[1], file.positions[4]]
    assert scanned.holes == [Hole(START, file.positions[1]), Hole(file.positions[2], file.positions[4])]
    assert scanned.end == len(file.data)


def test_what_looks_like_a_frame_inside_a_message_is_none() -> None:
    inner = written(False)
    state = TopicState(np.zeros(1, np.int64))
    # A copy of a frame as the value of a message, at every alignment, in a frame that is torn.
    payload = b"".join(inner.data[START:] + bytes(8) for _ in range(8))
    outer = commit_of([values(payload)], state)[0][0]
    data = bytes(START) + b"".join(bytes(part) for part in frame.encode(outer, 1, START)[1])
    scanned = scan(memoryview(data)[: len(data) - 64], START, 1, "file")
    assert (scanned.frames, scanned.holes, scanned.end) == ([], [], START)


def test_a_commit_without_its_last_frame_is_cut() -> None:
    file = written(False, True, True, False)
    whole = file.scan()
    assert (found(whole), whole.end) == (file.positions, len(file.data))
    assert whole.last_commit == file.positions[1]
    assert written(True, False).scan().last_commit == START
    for length in (file.positions[2], file.positions[3], file.positions[3] + 70):
        scanned = file.scan(file.data[:length])
        assert (found(scanned), scanned.holes, scanned.end) == (file.positions[:1], [], file.positions[1])


def test_an_unfinished_commit_is_cut_where_what_is_known_to_be_whole_ends() -> None:
    file = written(False, True, True)
    scanned = file.scan(complete_bytes=file.positions[1])
    assert (found(scanned), scanned.holes, scanned.end) == (file.positions[:1], [], file.positions[1])


def test_a_file_that_is_one_unfinished_commit_has_nothing() -> None:
    scanned = written(True, True).scan()
    assert (scanned.frames, scanned.holes, scanned.end) == ([], [], START)

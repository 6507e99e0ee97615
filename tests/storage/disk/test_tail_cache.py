"""The tail: the newest small commits are read without a file, and everything else is left to the segments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.core.publish.state import TopicState
from headrace.storage.disk.files import frame
from headrace.storage.disk.tail_cache import BYTES_MAX, COMMITS_MAX, PIECES_MAX, TAIL_COMMIT_BYTES_MAX, TailCache
from tests.storage.builders import EVERYTHING, NOW_US, batch_of, commit_of, values
from tests.storage.disk.builders import ROOMY_OPTIONS, DiskTopic, FailingFiles


class Written:
    """A tail that is given commits one after another, as a log would."""

    def __init__(self, partitions: int = 2) -> None:
        self.tail = TailCache()
        self._state = TopicState(np.zeros(partitions, np.int64))

    def write(self, *rows: tuple[int, bytes]) -> None:
        batch = batch_of([{"partition": partition, "value": value} for partition, value in rows])
        (commit,), _ = commit_of([batch], self._state, NOW_US + self._state.next_number)
        self._state.apply(commit)
        header, buffers = frame.encode(commit, 1, 0)
        self.tail.append(header, commit.directory, buffers[1])

    def read(self, partition: int, offset: int, stop: int) -> list[tuple[bytes, int]] | None:
        found = self.tail.read(partition, offset, stop)
        if found is None:
            return None
        rows, times = found
        assert rows.num_rows == len(times) == stop - offset
        return list(zip(rows.column("value").to_pylist(), (times - NOW_US).tolist(), strict=True))


def test_rows_are_found_by_partition_and_offset_with_their_times() -> None:
    written = Written()
    written.write((1, b"b0"), (0, b"a0"), (1, b"b1"))
    written.write((1, b"b2"))
    written.write((0, b"a1"), (1, b"b3"))
    assert written.read(0, 0, 2) == [(b"a0", 0), (b"a1", 2)]
    assert written.read(1, 0, 4) == [(b"b0", 0), (b"b1", 0), (b"b2", 1), (b"b3", 2)]
    assert written.read(1, 1, 3) == [(b"b1", 0), (b"b2", 1)]
    assert written.read(1, 3, 4) == [(b"b3", 2)]
    assert [written.tail.time_of(1, offset) for offset in range(4)] == [NOW_US, NOW_US, NOW_US + 1, NOW_US + 2]


def test_a_partition_that_has_nothing_here_is_read_elsewhere() -> None:
    written = Written()
    written.write((1, b"b0"))
    assert written.read(0, 0, 1) is None
    assert written.tail.time_of(0, 0) is None


def test_a_large_commit_empties_it_and_the_next_small_one_starts_over() -> None:
    written = Written()
    written.write((0, b"a0"))
    written.write((1, bytes(TAIL_COMMIT_BYTES_MAX)))
    assert written.read(0, 0, 1) is written.read(1, 0, 1) is None
    written.write((0, b"a1"))
    assert written.read(0, 1, 2) == [(b"a1", 2)]
    assert written.read(0, 0, 2) is None


def test_the_number_of_commits_is_bounded() -> None:
    written = Written()
    written.write((1, b"b0"))
    for number in range(COMMITS_MAX):
        written.write((0, b"%d" % number))
    assert written.read(1, 0, 1) is None
    assert written.read(0, 0, 1) == [(b"0", 1)]
    written.write((0, b"last"))
    assert written.read(0, 0, 1) is None
    assert written.read(0, COMMITS_MAX, COMMITS_MAX + 1) == [(b"last", COMMITS_MAX + 1)]


def test_the_number_of_bytes_is_bounded() -> None:
    written = Written()
    size = TAIL_COMMIT_BYTES_MAX // 2
    count = BYTES_MAX // size
    for number in range(count):
        written.write((0, b"%d" % number + bytes(size)))
    # With what Arrow adds to each, one less than that fits.
    assert written.tail.time_of(0, 0) is None
    assert written.tail.time_of(0, 1) is not None


def test_what_is_in_too_many_pieces_is_read_elsewhere() -> None:
    written = Written()
    for number in range(PIECES_MAX + 1):
        written.write((0, b"%d" % number))
    assert written.read(0, 0, PIECES_MAX + 1) is None
    rows = written.read(0, 1, PIECES_MAX + 1)
    assert rows is not None and len(rows) == PIECES_MAX
    assert written.read(0, 0, 1) == [(b"0", 0)]


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_follower_of_the_end_touches_no_file(tmp_path: Path, limit: int) -> None:
    files = FailingFiles()
    topic = DiskTopic(tmp_path / "store", options=ROOMY_OPTIONS, files=files)
    topic.publish(values(b"a"))
    topic.publish(values(b"b"), values(b"c"))
    files.calls.clear()
    batch = topic.log.read(0, 1, limit, EVERYTHING)
    assert batch.column("value").to_pylist() == [b"b", b"c"][:limit]
    assert batch.column("offset").to_pylist() == [1, 2][:limit]
    assert topic.log.time_of(0, 2) is not None
    assert files.calls == []
    expected = topic.log.read(0, 0, 100, EVERYTHING)
    assert topic.reopen().read(0, 0, 100, EVERYTHING).equals(expected)
    assert "map" in files.calls
    topic.close()


def test_bytes_bound_what_comes_from_memory_too(tmp_path: Path) -> None:
    topic = DiskTopic(tmp_path / "store", options=ROOMY_OPTIONS)
    topic.publish(values(bytes(100), bytes(100), bytes(100)))
    assert topic.log.read(0, 0, 100, 250).num_rows == 2
    assert topic.log.read(0, 0, 100, 1).num_rows == 1
    topic.close()

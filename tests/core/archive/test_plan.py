"""What the archiver decides: the next cut, the spans of a file, merges, and what has expired."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.core.archive.manifest import ArchiveFile, ArchiveRange
from headrace.core.archive.plan import (
    Span,
    Work,
    choose_cut,
    choose_merge,
    expired,
    next_cores,
    pause_seconds,
    spans,
)
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import (
    ARCHIVE_CATCH_UP_SECONDS,
    ARCHIVE_CORES_MAX,
    ARCHIVE_CORES_MIN,
    ARCHIVE_SERVER_SHARE,
    ARCHIVE_TYPED_CORES_MAX,
    MICROSECONDS,
)
from headrace.core.topics.retention import Piece

NOW_US = 1_000 * MICROSECONDS


def offsets(*values: int) -> Int64s:
    return np.array(values, np.int64)


def pieces(*ends: tuple[int, int], size: int = 100) -> list[Piece]:
    return [Piece(size, NOW_US, offsets(*end)) for end in ends]


def cut(found: Int64s | None) -> list[int] | None:
    return None if found is None else found.tolist()


def test_a_file_is_cut_where_enough_segments_end() -> None:
    known = pieces((2, 0), (4, 4), (6, 6))
    assert cut(choose_cut(known, offsets(0, 0), NOW_US, 60, 250, NOW_US)) == [4, 4]
    # What is archived already does not count, nor do partitions that it does not know.
    assert cut(choose_cut(known, offsets(2), NOW_US, 60, 150, NOW_US)) == [4, 4]


def test_a_segment_larger_than_a_file_is_a_file() -> None:
    assert cut(choose_cut(pieces((2, 0), (4, 4)), offsets(0, 0), NOW_US, 60, 10, NOW_US)) == [2, 0]
    assert cut(choose_cut(pieces((2, 0)), offsets(0, 0), NOW_US, 60, 10, NOW_US)) == [2, 0]


@pytest.mark.parametrize("seconds", [60, 61, -1])
def test_what_there_is_is_archived_after_a_while_or_if_the_clock_was_set_back(seconds: int) -> None:
    now_us = NOW_US + seconds * MICROSECONDS
    assert cut(choose_cut(pieces((2, 0), (3, 1)), offsets(0, 0), NOW_US, 60, 1000, now_us)) == [3, 1]


def test_nothing_is_archived_too_early_or_twice() -> None:
    assert choose_cut(pieces((2, 0)), offsets(0, 0), NOW_US, 60, 1000, NOW_US + 59 * MICROSECONDS) is None
    assert choose_cut(pieces((2, 0)), offsets(2, 0), NOW_US, 60, 1, NOW_US + 61 * MICROSECONDS) is None
    assert choose_cut([], offsets(), NOW_US, 60, 1, NOW_US + 61 * MICROSECONDS) is None


def test_spans_begin_where_the_archive_ends_and_name_what_the_log_lost() -> None:
    found = spans(offsets(5, 3), offsets(9, 3, 4), offsets(7, 0, 0), [(2, 0, 1), (2, 2, 3)])
    assert found == [
        Span(0, 5, 7, False),
        Span(0, 7, 9, True),
        Span(2, 0, 1, False),
        Span(2, 1, 2, True),
        Span(2, 2, 3, False),
        Span(2, 3, 4, True),
    ]


def test_a_span_may_be_lost_as_a_whole() -> None:
    assert spans(offsets(0), offsets(4), offsets(9), []) == [Span(0, 0, 4, False)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], None),
        ([1, 1, 1], None),
        ([1, 1, 1, 1], slice(0, 4)),
        ([99, 1, 1, 1, 1], slice(1, 5)),
        ([60, 1, 1, 1], None),
        ([60, 1, 1, 1, 1, 1], slice(1, 6)),
        ([30, 30, 30, 30, 30], slice(0, 5)),
        ([45, 45, 45, 45, 45, 45], slice(0, 4)),
        ([1] * 100, slice(0, 64)),
    ],
)
def test_small_neighbours_are_merged_if_none_outweighs_the_others(sizes: list[int], expected: slice | None) -> None:
    assert choose_merge(sizes, small_bytes=64, file_bytes=200) == expected


def archived(last_us: int, *ranges: ArchiveRange) -> ArchiveFile:
    return ArchiveFile("x", 1, 1, "", 0, last_us, list(ranges))


def test_the_oldest_files_expire_unless_an_important_group_needs_them() -> None:
    old, new = NOW_US - 100 * MICROSECONDS, NOW_US - 10 * MICROSECONDS
    files = [
        archived(old, ArchiveRange(0, 0, 5, 5, 0, 0), ArchiveRange(1, 0, 3, 0, 0, 0)),
        archived(old, ArchiveRange(0, 5, 9, 4, 0, 0)),
        archived(new),
    ]
    start = offsets(9, 3)
    assert expired(files, 50, start, None, NOW_US) == 2
    assert expired(files, 5, start, None, NOW_US) == 3
    assert expired(files, 50, start, offsets(5), NOW_US) == 1
    assert expired(files, 50, start, offsets(), NOW_US) == 0
    assert expired(files, 200, start, None, NOW_US) == 0
    assert expired(files, 50, offsets(6), None, NOW_US) == 1, "the log has offset 6 too"
    assert expired(files, None, start, None, NOW_US) == 0
    assert expired(files, None, start, offsets(0), NOW_US, offsets(8, 3)) == 1, "only what was deleted as a whole"
    assert expired(files[:2], 50, start, None, NOW_US, offsets(5)) == 2


def work(waiting_seconds: float | None, elapsed_seconds: float = 0.2, server_cores: float = 1.0) -> Work:
    return Work(0.1, waiting_seconds, elapsed_seconds, server_cores)


def test_the_archiver_pauses_by_its_cpu_time() -> None:
    assert pause_seconds(work(0.0, 0.1), 0.25) == pytest.approx(0.3)
    assert pause_seconds(work(0.2, 0.3), 0.25) == pytest.approx(0.1), "waiting for a core is a pause too"
    assert pause_seconds(work(8.9, 9.0), 0.25) == 0.0


def test_the_archiver_takes_less_while_threads_wait_for_a_core_and_more_while_cores_are_idle() -> None:
    cores = 0.0
    for _ in range(100):
        cores, before = next_cores(cores, work(0.001), 0.0), cores
        assert cores > before or cores == ARCHIVE_CORES_MAX
    assert next_cores(cores, work(None), 0.0) == cores == ARCHIVE_CORES_MAX
    assert next_cores(cores, work(0.1), 0.0) == ARCHIVE_CORES_MAX / 2
    assert next_cores(cores, work(0.001), 0.0, ARCHIVE_TYPED_CORES_MAX) == ARCHIVE_TYPED_CORES_MAX
    for _ in range(100):
        cores = next_cores(cores, work(0.1, server_cores=0.5), 0.0)
    assert cores == 0.5 * ARCHIVE_SERVER_SHARE
    assert next_cores(0.0, work(0.1, server_cores=0.0), 0.0) == ARCHIVE_CORES_MIN


def test_an_archiver_that_is_late_takes_more_and_more() -> None:
    late = [number * ARCHIVE_CATCH_UP_SECONDS for number in range(6)]
    found = [next_cores(0.0, work(0.1), late_seconds) for late_seconds in late]
    assert found == [pytest.approx(cores) for cores in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)]
    assert next_cores(0.0, work(0.1), 1e9) == 1.0

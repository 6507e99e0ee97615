"""How far bytes reach: by the mean size of messages in each segment."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.topics.byte_limits import ByteRanges, offsets_within
from headrace.core.topics.retention import Piece


def piece(size: int, *ends: int) -> Piece:
    return Piece(size, 0, np.array(ends, np.int64))


def reached(pieces: list[Piece], oldest: list[int], *wanted: tuple[int, int, int, int]) -> list[int]:
    columns = [np.array(column, np.int64) for column in zip(*wanted, strict=True)]
    stops: list[int] = offsets_within(pieces, np.array(oldest, np.int64), ByteRanges(*columns)).tolist()
    return stops


# Ten messages of 100 bytes in each of two partitions, then twenty of 10 bytes.
PIECES = [piece(2_000, 10, 10), piece(400, 30, 30)]


def test_large_messages_are_few_and_small_ones_many() -> None:
    assert reached(PIECES, [0, 0], (0, 0, 30, 500)) == [5]
    assert reached(PIECES, [0, 0], (0, 0, 30, 1_050)) == [15]
    assert reached(PIECES, [0, 0], (0, 12, 30, 50), (1, 9, 30, 110)) == [17, 11]
    assert reached(PIECES, [0, 0], (1, 0, 30, 5_000)) == [30]


def test_less_than_a_message_reaches_nowhere_and_no_further() -> None:
    # Not even to the smaller messages after it.
    assert reached(PIECES, [0, 0], (0, 9, 30, 99), (1, 10, 30, 99)) == [9, 19]


def test_what_was_deleted_takes_nothing() -> None:
    assert reached(PIECES, [8, 0], (0, 0, 30, 1)) == [8]
    assert reached(PIECES, [8, 0], (0, 0, 5, 1)) == [5]
    # All of the oldest segment was deleted on request.
    assert reached(PIECES, [20, 20], (0, 0, 30, 100)) == [25]


def test_partitions_that_were_added_and_messages_that_came_meanwhile() -> None:
    assert reached([piece(100, 1), piece(100, 1, 10)], [0], (1, 0, 10, 55), (0, 0, 1, 7)) == [5, 0]
    assert reached([piece(100, 1)], [0], (0, 0, 9, 10_000), (3, 0, 4, 1)) == [1, 0]
    assert reached([], [0], (0, 0, 9, 10)) == [0]


def test_a_segment_without_bytes_or_messages_is_no_obstacle() -> None:
    assert reached([piece(64, 0), piece(0, 5), piece(100, 15)], [0], (0, 0, 15, 65)) == [11]


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 500)), max_size=6),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 900)), min_size=2, max_size=2),
)
def test_within_a_range_and_its_bytes(rows: list[tuple[int, int, int]], wanted: list[tuple[int, int, int]]) -> None:
    """One by one, in the plainest way."""
    ends, pieces = np.zeros(2, np.int64), []
    sizes: tuple[list[float], list[float]] = ([], [])
    for one, other, size in rows:
        ends = ends + np.array([one, other])
        pieces.append(piece(size, *ends.tolist()))
        mean = max(1.0, size / max(1, one + other))
        sizes[0].extend([mean] * one)
        sizes[1].extend([mean] * other)
    found = reached(pieces, [0, 0], *((place, *bounds) for place, bounds in enumerate(wanted)))
    for known, stop, (start, end, bytes_max) in zip(sizes, found, wanted, strict=True):
        expected, left = start, float(bytes_max)
        while expected < min(end, len(known)) and known[expected] <= left:
            left -= known[expected]
            expected += 1
        assert abs(stop - expected) <= 1 if start <= end else stop == start

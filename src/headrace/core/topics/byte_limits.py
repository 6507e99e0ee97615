"""How far a number of bytes reaches in partitions, by what segments of the log take: no message is looked at. Pure.

Messages of one segment count as equally large, its size divided by their number. So the answer is right within about a
segment, and for partitions together rather than for one whose messages are unlike those of its neighbours.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.core.hashes.columns import Int64s
from headrace.core.topics.offsets import widened
from headrace.core.topics.retention import Piece


@dataclass(frozen=True, slots=True)
class ByteRanges:
    """Ranges of some partitions, and how many bytes may be read of each: arrays of one length."""

    partition: Int64s
    start: Int64s
    end: Int64s
    bytes_max: Int64s


def offsets_within(pieces: Sequence[Piece], oldest: Int64s, ranges: ByteRanges) -> Int64s:
    """The offset up to which each range has about so many bytes; messages before the oldest ones take none.

    pieces: the segments, oldest first.
    oldest: the start offset of every partition.
    """
    count = max(len(oldest), int(ranges.partition.max(initial=0)) + 1)
    before = widened(oldest, count)
    reached = np.clip(before[ranges.partition], ranges.start, np.maximum(ranges.start, ranges.end))
    left = ranges.bytes_max.astype(np.float64)
    first = _first_after(pieces, ranges.partition, reached, count)
    if first:
        before = np.maximum(before, widened(pieces[first - 1].end_offsets, count))
    for piece in pieces[first:]:
        ends = np.maximum(before, widened(piece.end_offsets, count))
        mean_bytes = max(1.0, piece.bytes / max(1, int((ends - before).sum())))
        waiting = np.maximum(np.minimum(ends[ranges.partition], ranges.end) - reached, 0)
        taken = np.minimum(waiting, (left // mean_bytes).astype(np.int64))
        reached = reached + taken
        left = np.where(taken < waiting, 0.0, left - taken * mean_bytes)
        before = ends
        if not np.any((left > 0) & (reached < ranges.end)):
            break
    return reached


def _first_after(pieces: Sequence[Piece], partition: Int64s, reached: Int64s, count: int) -> int:
    """The first segment with a message at or after one of these offsets: those before it are not looked at."""
    return bisect.bisect_left(
        pieces, True, key=lambda piece: bool((widened(piece.end_offsets, count)[partition] > reached).any())
    )

"""Which offsets of a partition can be read: those from its start to its end that are in no gap.

A gap is a range of offsets that were given, or may have been, and whose messages are lost. They are never given again.
A reader that reaches one gets the offset at which to continue, as after retention.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from headrace.core.errors import OffsetOutOfRange, PartitionNotFound
from headrace.core.hashes.columns import Int64s
from headrace.core.topics.retention import NOTHING_DELETED


class Gap(NamedTuple):
    """Offsets of a partition that are absent: from `first` up to, and without, `end`."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Start and end offset of every partition, and the gaps between them, in order.

    deleted_before: by partition the offset below which messages were deleted on request; never above the start.
    """

    start: Int64s
    end: Int64s
    gaps: tuple[Gap, ...] = ()
    deleted_before: Int64s = field(default_factory=lambda: NOTHING_DELETED)

    def by_partition(self) -> dict[int, tuple[int, int]]:
        """Start and end offset by partition."""
        return dict(enumerate(zip(self.start.tolist(), self.end.tolist(), strict=True)))

    @property
    def skipped(self) -> int:
        """How many offsets are absent."""
        return sum(gap.end - gap.first for gap in self.gaps)

    def readable(self, partition: int, offset: int) -> int:
        """The offset itself, or the end of the gap that it is in."""
        place = bisect.bisect_left(self.gaps, (partition, offset + 1)) - 1
        if place >= 0 and self.gaps[place].partition == partition:
            return max(offset, self.gaps[place].end)
        return offset

    def past_gaps(self, positions: Int64s) -> Int64s:
        """Positions by partition, those in a gap moved to its end."""
        if not self.gaps:
            return positions
        return np.array([self.readable(place, offset) for place, offset in enumerate(positions.tolist())], np.int64)

    def stop(self, partition: int, offset: int) -> int:
        """The end of what can be read from an offset without a gap."""
        end = int(self.end[partition])
        place = bisect.bisect_left(self.gaps, (partition, offset + 1))
        has_gap = place < len(self.gaps) and self.gaps[place].partition == partition
        return min(end, self.gaps[place].first) if has_gap else end


def offsets_past(
    start: Int64s, end: Int64s, gaps: Iterable[Gap] = (), deleted_before: Int64s = NOTHING_DELETED
) -> OffsetRange:
    """Offsets from the oldest stored message on: past what was deleted on request, with the gaps above the start.

    A partition that starts with a gap starts after it.
    """
    start = raised(start, deleted_before)
    known = tuple(gap for gap in gaps if gap.end > start[gap.partition])
    if known:
        start = OffsetRange(start, end, known).past_gaps(start)
    return OffsetRange(start, end, known, deleted_before)


def raised(start: Int64s, deleted_before: Int64s) -> Int64s:
    """Start offsets, those below what was deleted raised to it."""
    if not len(deleted_before):
        return start
    known = deleted_before[: len(start)]
    return np.concatenate([np.maximum(start[: len(known)], known), start[len(known) :]])


def deleted_to(deleted_before: Int64s | Sequence[int], partition: int) -> int:
    """The offset below which messages of a partition were deleted on request."""
    return int(deleted_before[partition]) if partition < len(deleted_before) else 0


def check_range(topic: str, offsets: OffsetRange, partition: int, offset: int) -> int:
    """How far the partition can be read from this offset, or an error that names the valid range."""
    if not 0 <= partition < len(offsets.end):
        raise PartitionNotFound(topic, partition, len(offsets.end))
    start, end = int(offsets.start[partition]), int(offsets.end[partition])
    # In a gap, the oldest readable offset is its end.
    start = max(start, offsets.readable(partition, offset)) if start <= offset <= end else start
    if not start <= offset <= end:
        raise OffsetOutOfRange(topic, partition, offset, start, end)
    return offsets.stop(partition, offset) if offsets.gaps else end

"""A set of integers as disjoint intervals, for offsets. Not thread-safe."""

from __future__ import annotations

import bisect


class Intervals:
    """Half-open intervals, merged as they are added.

    >>> offsets = Intervals()
    >>> offsets.add(0, 3)
    >>> offsets.add(5, 8)
    >>> offsets.missing(10)
    [(3, 5), (8, 10)]
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Add the numbers from `start` up to and without `end`."""
        if start >= end:
            return
        first = bisect.bisect_left(self._ends, start)
        last = bisect.bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def missing(self, end: int) -> list[tuple[int, int]]:
        """The intervals from 0 up to and without `end` that are not in the set."""
        holes, position = [], 0
        for start, stop in zip(self._starts, self._ends, strict=True):
            if position >= end:
                break
            if start > position:
                holes.append((position, min(start, end)))
            position = max(position, stop)
        if position < end:
            holes.append((position, end))
        return holes

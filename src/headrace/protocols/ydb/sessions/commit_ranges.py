"""Ranges of offsets that a client has handled, committed in any order: how far all of them reach without a hole. Pure.

    ranges = CommitRanges(committed=5)
    ranges.add(8, 9)        True: it is new
    ranges.reach(start=0)   5: offsets 5 to 7 are missing
    ranges.add(5, 8)
    ranges.reach(start=0)   9

What retention has deleted can never be committed: it counts as if it were.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

# A client that commits every other message, and never those between, is stopped here.
HOLES_MAX: Final = 10_000


class CommitRanges:
    """The committed offset of one partition, and what is committed beyond it."""

    def __init__(self, committed: int) -> None:
        self.committed = committed
        # Ranges beyond it, in order, which neither overlap nor touch.
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def is_new(self, start: int, end: int) -> bool:
        """Whether a range is one, and not committed before."""
        return 0 <= start < end and end > self.committed

    def add(self, start: int, end: int) -> None:
        """Take a range."""
        first = bisect_left(self._ends, start)
        last = bisect_left(self._starts, end + 1)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def reach(self, start: int) -> int:
        """How far the partition is committed, of which `start` is the first offset that exists."""
        reached = self.committed
        for first, end in zip(self._starts, self._ends, strict=True):
            if first > max(reached, start):
                break
            reached = max(reached, end)
        return reached

    def commit(self, offset: int) -> None:
        """Everything below an offset is committed now."""
        self.committed = max(self.committed, offset)
        while self._ends and self._ends[0] <= self.committed:
            del self._starts[0], self._ends[0]

    def move(self, offset: int) -> None:
        """The partition was moved to an offset, forward or back: nothing beyond it counts."""
        self.committed = offset
        self._starts.clear()
        self._ends.clear()

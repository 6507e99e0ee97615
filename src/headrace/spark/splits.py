"""Splits: which task reads which offsets. A large partition is read by several tasks, so that it stalls nobody.

Pure arithmetic on dense offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

Ranges = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Split(InputPartition):
    """The messages of one partition from `start` up to `end`, for one task."""

    partition: int
    start: int
    end: int

    @property
    def messages(self) -> int:
        """How many there are."""
        return self.end - self.start


def ranges_between(start: Mapping[int, int], end: Mapping[int, int]) -> Ranges:
    """What lies between two places; a partition that the first does not know begins at its beginning, 0."""
    return {
        partition: (start.get(partition, 0), stop)
        for partition, stop in sorted(end.items())
        if start.get(partition, 0) < stop
    }


def split(ranges: Ranges, messages_max: int, splits_min: int) -> list[Split]:
    """The ranges cut into tasks of at most so many messages, and into so many tasks where there is enough to read."""
    total = sum(end - start for start, end in ranges.values())
    # With so many messages in a task there are about as many tasks as asked for.
    share = max(1, -(-total // splits_min))
    size = min(messages_max, share) if splits_min > len(ranges) else messages_max
    return [piece for partition, (start, end) in ranges.items() for piece in _cut(partition, start, end, size)]


def _cut(partition: int, start: int, end: int, size: int) -> list[Split]:
    pieces = -(-(end - start) // size)
    bounds = [start + (end - start) * place // pieces for place in range(pieces + 1)]
    return [Split(partition, bounds[place], bounds[place + 1]) for place in range(pieces)]

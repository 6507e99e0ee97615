"""Splits: which task reads which offsets of which topic.

A large partition is read by several tasks, so that it stalls nobody. Partitions with few messages share a task:
starting one costs more than reading them, and micro-batches are mostly small. Pure arithmetic on dense offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql.datasource import InputPartition

# A task gets more partitions as long as it has at most this number of messages.
SHARED_MESSAGES: Final = 50_000


class PartitionKey(NamedTuple):
    """A partition of a topic. The id tells the topic from an earlier or later one of the same name."""

    topic_id: int
    topic: str
    partition: int


Offsets = Mapping[PartitionKey, int]
Bounds = Mapping[PartitionKey, tuple[int, int]]
Ranges = dict[PartitionKey, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Range:
    """The messages of one partition from `start` up to `end`."""

    of: PartitionKey
    start: int
    end: int


@dataclass(frozen=True)
class Split(InputPartition):
    """What one task reads."""

    ranges: tuple[Range, ...]

    @property
    def messages(self) -> int:
        """The number of messages."""
        return sum(part.end - part.start for part in self.ranges)


def ranges_between(start: Offsets, end: Offsets) -> Ranges:
    """What lies between two places; a partition that the first does not know begins at its beginning, 0."""
    return {
        partition: (start.get(partition, 0), stop)
        for partition, stop in sorted(end.items())
        if start.get(partition, 0) < stop
    }


def split(ranges: Ranges, messages_max: int, splits_min: int) -> list[Split]:
    """The ranges cut into tasks of at most so many messages, and into so many tasks where there is enough to read."""
    total = sum(end - start for start, end in ranges.values())
    # With this many messages in a task there are about as many tasks as asked for.
    share = max(1, -(-total // splits_min))
    size = min(messages_max, share) if splits_min > len(ranges) else messages_max
    parts = [part for partition, (start, end) in ranges.items() for part in _cut(partition, start, end, size)]
    return _packed(parts, min(messages_max, SHARED_MESSAGES, share), splits_min)


def _cut(partition: PartitionKey, start: int, end: int, size: int) -> list[Range]:
    pieces = -(-(end - start) // size)
    bounds = [start + (end - start) * place // pieces for place in range(pieces + 1)]
    return [Range(partition, bounds[place], bounds[place + 1]) for place in range(pieces)]


def _packed(parts: list[Range], messages_max: int, splits_min: int) -> list[Split]:
    """The parts in their order, neighbours in one task as long as they are few messages and there are tasks enough."""
    splits: list[list[Range]] = []
    spare, room = len(parts) - splits_min, 0
    for part in parts:
        count = part.end - part.start
        if spare > 0 and count <= room:
            splits[-1].append(part)
            spare -= 1
        else:
            splits.append([part])
            room = messages_max
        room -= count
    return [Split(tuple(split)) for split in splits]

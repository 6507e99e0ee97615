"""Splits: which task reads which offsets of which topic.

A large partition is read by several tasks, so that it stalls nobody. Partitions with few messages share a task:
starting one costs more than reading them, and micro-batches are mostly small. Pure arithmetic on dense offsets.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

# A task gets more partitions as long as it has at most this number of messages.
SHARED_MESSAGES: Final = 50_000
# Parts are small if this many of them fit into such a task.
_SMALL_PARTS: Final = 8


class PartitionKey(NamedTuple):
    """A partition of a topic. The id tells the topic from an earlier or later one of the same name."""

    topic_id: int
    topic: str
    partition: int


Offsets = Mapping[PartitionKey, int]
Bounds = Mapping[PartitionKey, tuple[int, int]]
Ranges = dict[PartitionKey, tuple[int, int]]


class Range(NamedTuple):
    """The messages of one partition from `start` up to `end`."""

    of: PartitionKey
    start: int
    end: int


# A topic's id and name, and three numbers for each of its ranges.
_Flat = tuple[int, str, bytes]


@dataclass(frozen=True)
class Split(InputPartition):
    """What one task reads."""

    ranges: tuple[Range, ...]

    @property
    def messages(self) -> int:
        """The number of messages."""
        return sum(part.end - part.start for part in self.ranges)

    def __reduce__(self) -> tuple[Callable[[list[_Flat]], Split], tuple[list[_Flat]]]:
        """Pickled as plain numbers: range by range, ten thousand of them take longer to send than to read."""
        topics: dict[tuple[int, str], array[int]] = {}
        for (topic_id, topic, partition), start, end in self.ranges:
            topics.setdefault((topic_id, topic), array("q")).extend((partition, start, end))
        return _restored, ([(*topic, numbers.tobytes()) for topic, numbers in topics.items()],)


def _restored(topics: list[_Flat]) -> Split:
    ranges: list[Range] = []
    for topic_id, topic, content in topics:
        numbers = array("q", content).tolist()
        triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
        ranges += [Range(PartitionKey(topic_id, topic, partition), start, end) for partition, start, end in triples]
    return Split(tuple(ranges))


def packed_split(made: Split, schema: pa.Schema) -> pa.RecordBatch:
    """A split as the only row of a batch: its bytes, and the number of its messages."""
    content = pickle.dumps(made)
    # Laid out here, since Arrow imports pandas to make an array of Python objects.
    bounds = np.array([0, len(content)], np.int32)
    column = pa.BinaryArray.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bounds), pa.py_buffer(content)])
    messages = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(np.array([made.messages], np.int64))])
    return pa.RecordBatch.from_arrays([column, messages], schema=schema)


def unpacked_splits(rows: pa.RecordBatch) -> Iterator[Split]:
    """The splits in a batch of such rows."""
    for content in rows.column(0):
        made: Split = pickle.loads(content.as_buffer())
        yield made


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
    shared = min(messages_max, SHARED_MESSAGES, share)
    return _packed(parts, _evened(parts, shared, messages_max), splits_min)


def _cut(partition: PartitionKey, start: int, end: int, size: int) -> list[Range]:
    if end - start <= size:
        return [Range(partition, start, end)]
    pieces = -(-(end - start) // size)
    bounds = [start + (end - start) * place // pieces for place in range(pieces + 1)]
    return [Range(partition, bounds[place], bounds[place + 1]) for place in range(pieces)]


def _evened(parts: list[Range], shared: int, messages_max: int) -> int:
    """How many messages parts share a task with: of many small parts, such that the last task has about as many."""
    counts = [part.end - part.start for part in parts]
    total, largest = sum(counts), max(counts, default=0)
    if largest * _SMALL_PARTS > shared or total <= shared:
        return shared
    tasks = -(-total // shared)
    # Every task but the last may lack up to one part.
    return min(messages_max, -(-total // tasks) + largest)


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

"""One consumer's way through a topic, message by message, in the one order that all consumers of the topic see.

Broker time rises with every commit of a topic, and a commit becomes visible at once. So (time, partition, offset)
orders all messages, and what is written later stands behind everything that is visible now: the first of the
partitions' next messages is the next message of the topic.

The group's committed offsets are the position and there is no other, so a seek counts from the next read on. The
position is durable before the message is given out. A lock lets one read through at a time, and where servers share the
store only the one that moves the position gives the message out: no two get the same, and none is left out. If it is
unknown who moved it, because the answer of the database was lost, taking says so: the group may stand behind a message
that nobody got. What is read ahead is kept by its offset, and so is right wherever the position goes.

Lock order: this lock, then those of groups and log.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.broker.clock import Clock
from headrace.broker.topics.registry import OpenTopic
from headrace.core.errors import OffsetOutOfRange, StaleGeneration
from headrace.core.hashing import Int64s

# What is read ahead, shared by the partitions; a larger message is read all the same, and not kept.
AHEAD_MESSAGES: Final = 128
AHEAD_BYTES: Final = 64 << 10

# What was dropped or cannot be read comes first: fetching it says what happened to it.
_UNKNOWN_US: Final = -1


@dataclass(frozen=True, slots=True)
class Taken:
    """A message given out: its value, and how that is packed."""

    value: bytes
    codec: str | None


class _Overtaken(Exception):
    """Another server gave this message out."""


class _Ahead:
    """Messages of one partition that were read ahead, copied out of the log so that they hold no file of it."""

    def __init__(self, offset: int, batch: pa.RecordBatch) -> None:
        self._offset = offset
        self._times_us: list[int] = batch.column("timestamp").view(pa.int64()).to_pylist()
        self._values: list[bytes] = batch.column("value").to_pylist()
        self._codecs: list[str | None] = batch.column("codec").to_pylist()

    def has(self, offset: int) -> bool:
        return 0 <= offset - self._offset < len(self._values)

    def time_us(self, offset: int) -> int:
        return self._times_us[offset - self._offset]

    def message(self, offset: int) -> Taken:
        place = offset - self._offset
        return Taken(self._values[place], self._codecs[place])


class OrderedReader:
    """A group that reads a topic in order. Safe for threads."""

    def __init__(self, opened: OpenTopic, group: str, clock: Clock) -> None:
        self._topic = opened.topic
        self._groups = opened.groups
        self._group = group
        self._clock = clock
        self._lock = threading.Lock()
        self._ahead: dict[int, _Ahead] = {}
        # By partition the offset that was asked for last, and its time.
        self._times: dict[int, tuple[int, int]] = {}

    def left(self) -> int:
        """How many messages there are yet to read."""
        self._groups.get(self._group)
        positions, ends = self._look()
        return int(np.maximum(ends - positions, 0).sum())

    def take(self) -> Taken | None:
        """The next message, or none; the group stands behind it from now on, whatever becomes of the caller."""
        with self._lock:
            while True:
                try:
                    return self._take()
                except (OffsetOutOfRange, StaleGeneration, _Overtaken):
                    # Retention dropped the message, or the group was moved, since the position was looked up.
                    continue

    def _take(self) -> Taken | None:
        generation = self._groups.get(self._group).generation
        positions, ends = self._look()
        waiting = np.flatnonzero(positions < ends).tolist()
        if not waiting:
            return None
        offsets = positions.tolist()
        partition = waiting[0] if len(waiting) == 1 else self._earliest(waiting, offsets)
        offset = offsets[partition]
        message = self._read(partition, offset, len(waiting))
        now_us = self._clock.now_us()
        if not self._groups.claim(self._group, partition, offset, generation, now_us):
            raise _Overtaken
        return message

    def _look(self) -> tuple[Int64s, Int64s]:
        """Position and end of every partition."""
        # The ends first, and all at once: what is written meanwhile must not be seen in one partition only.
        offsets = self._topic.offsets()
        return self._groups.positions_in(self._group, offsets), offsets.end

    def _earliest(self, partitions: list[int], offsets: list[int]) -> int:
        return min(partitions, key=lambda partition: (self._time_us(partition, offsets[partition]), partition))

    def _time_us(self, partition: int, offset: int) -> int:
        ahead = self._ahead.get(partition)
        if ahead is not None and ahead.has(offset):
            return ahead.time_us(offset)
        known_offset, time_us = self._times.get(partition, (-1, _UNKNOWN_US))
        if known_offset == offset:
            return time_us
        with self._topic.using() as log:
            found = log.time_of(partition, offset)
        if found is None:
            return _UNKNOWN_US
        self._times[partition] = (offset, found)
        return found

    def _read(self, partition: int, offset: int, shares: int) -> Taken:
        ahead = self._ahead.get(partition)
        if ahead is None or not ahead.has(offset):
            messages_max, bytes_max = max(1, AHEAD_MESSAGES // shares), max(1, AHEAD_BYTES // shares)
            ahead = _Ahead(offset, self._topic.fetch(partition, offset, messages_max, bytes_max, 0.0))
            self._ahead[partition] = ahead
        message = ahead.message(offset)
        if not ahead.has(offset + 1):
            del self._ahead[partition]
        return message

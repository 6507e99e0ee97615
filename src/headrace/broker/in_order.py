"""One consumer's way through a topic, message by message, in the one order that all consumers of the topic see.

Broker time rises with every commit of a topic, and a commit becomes visible at once. So (time, partition, offset)
orders all messages, and what is written later stands behind everything that is visible now: the first of the
partitions' next messages is the next message of the topic.

The group's committed offsets are the position and there is no other, so a seek counts from the next read on. The
position is durable before the message is given out. A lock lets one read through at a time: no two get the same
message, and none is left out. What is kept in memory are times of messages, which never change.

Lock order: this lock, then those of groups and log.
"""

from __future__ import annotations

import threading
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.broker.clock import Clock
from headrace.broker.topics import OpenTopic
from headrace.core.errors import OffsetOutOfRange, StaleGeneration
from headrace.core.hashing import Int64s
from headrace.core.limits import FETCH_BYTES_DEFAULT

# What was dropped or cannot be read comes first: fetching it says what happened to it.
_UNKNOWN_US: Final = -1


class InOrder:
    """A group that reads a topic in order. Safe for threads."""

    def __init__(self, opened: OpenTopic, group: str, clock: Clock) -> None:
        self._topic = opened.topic
        self._groups = opened.groups
        self._group = group
        self._clock = clock
        self._lock = threading.Lock()
        self._times: dict[int, tuple[int, int]] = {}

    def left(self) -> int:
        """How many messages there are yet to read."""
        positions, ends = self._look()
        return int(np.maximum(ends - positions, 0).sum())

    def take(self) -> pa.RecordBatch | None:
        """The next message, or none; the group stands behind it from now on, whatever becomes of the caller."""
        with self._lock:
            while True:
                try:
                    return self._take()
                except (OffsetOutOfRange, StaleGeneration):
                    # Retention dropped the message, or the group was moved, since the position was looked up.
                    continue

    def _take(self) -> pa.RecordBatch | None:
        generation = self._groups.get(self._group).generation
        positions, ends = self._look()
        waiting = np.flatnonzero(positions < ends).tolist()
        if not waiting:
            return None
        offsets = positions.tolist()
        partition = waiting[0] if len(waiting) == 1 else self._earliest(waiting, offsets)
        message = self._topic.fetch(partition, offsets[partition], 1, FETCH_BYTES_DEFAULT, 0.0)
        behind = {partition: offsets[partition] + 1}
        self._groups.commit(self._group, behind, None, generation, self._clock.now_us())
        return message

    def _look(self) -> tuple[Int64s, Int64s]:
        """Position and end of every partition."""
        # The ends first, and all at once: what is written meanwhile must not be seen in one partition only.
        with self._topic.using() as log:
            ends = log.offsets().end
        return self._groups.positions(self._group)[: len(ends)], ends

    def _earliest(self, partitions: list[int], offsets: list[int]) -> int:
        return min(partitions, key=lambda partition: (self._time_us(partition, offsets[partition]), partition))

    def _time_us(self, partition: int, offset: int) -> int:
        known_offset, time_us = self._times.get(partition, (-1, _UNKNOWN_US))
        if known_offset != offset:
            with self._topic.using() as log:
                found = log.time_of(partition, offset)
            if found is None:
                return _UNKNOWN_US
            time_us = found
            self._times[partition] = (offset, time_us)
        return time_us

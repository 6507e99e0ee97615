"""Reads a topic message by message, in one order that is the same for all consumers of the topic.

Broker time increases with every commit of a topic, and a commit becomes visible atomically. So (time, partition,
offset) orders all messages, and what is written later is after everything that is visible now: the first of the
partitions' next messages is the next message of the topic.

Offsets are dense, so the number of messages before the next one is the sum of the next offsets of all partitions.
That sum is the message's place in the topic, counted from 0: the same for every consumer and after every restart. A
place is found by time: N messages are older than a time, and those of one time are one commit, in the order of their
partitions.

The group's committed offsets are the only position, so a seek takes effect at the next read. The last view is cached:
while the next message was prefetched, a read is one statement that moves the position only if it has not changed. The
position is durable before the message is delivered. A lock allows one read at a time, and in a shared store only the
server that moves the position delivers the message: none is delivered twice, and none is skipped. If it is unknown
whether it moved, because the answer of the database was lost, reading raises that: the group may be past a message that
was not delivered. Prefetched messages are found by offset, so they stay valid wherever the position moves.

Lock order: this lock, then those of groups and log.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.broker.groups.groups import positions_of
from headrace.broker.topics.registry import OpenTopic
from headrace.core.errors import InvalidInput, OffsetOutOfRange, Overloaded, StaleGeneration
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import TAKES_MAX
from headrace.storage.interface import OffsetRange, TopicLog

# Prefetch size, shared by the partitions; a larger message is read too, but not cached.
AHEAD_MESSAGES: Final = 128
AHEAD_BYTES: Final = 64 << 10

# What was dropped or cannot be read sorts first: fetching it raises the reason.
_UNKNOWN_US: Final = -1


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivered message: its value, its codec, and its place in the topic, from 0."""

    value: bytes | None
    codec: str | None
    place: int


class _Choice(NamedTuple):
    """The message to read next: where it is, its place in the order of all, and how many partitions have more."""

    partition: int
    offset: int
    place: int
    shares: int


@dataclass(frozen=True, slots=True)
class _View:
    """The group's offsets and the topic's offsets at the last query, with the commits made here since.

    deleted_before: what was deleted on request before the query.
    """

    committed: Mapping[int, int]
    offsets: OffsetRange
    deleted_before: tuple[int, ...]

    @property
    def positions(self) -> Int64s:
        return positions_of(self.offsets, self.committed)

    def after(self, partition: int, offset: int) -> _View:
        return replace(self, committed={**self.committed, partition: offset + 1})


class _Overtaken(Exception):
    """Another server delivered this message."""


class _Ahead:
    """Prefetched messages of one partition, copied so that they keep no file of the log mapped."""

    def __init__(self, offset: int, batch: pa.RecordBatch) -> None:
        self._offset = offset
        self._times_us: list[int] = batch.column("timestamp").view(pa.int64()).to_pylist()
        self._values: list[bytes | None] = batch.column("value").to_pylist()
        self._codecs: list[str | None] = batch.column("codec").to_pylist()

    def has(self, offset: int) -> bool:
        return 0 <= offset - self._offset < len(self._values)

    def time_us(self, offset: int) -> int:
        return self._times_us[offset - self._offset]

    def message(self, offset: int, place: int) -> Taken:
        row = offset - self._offset
        return Taken(self._values[row], self._codecs[row], place)


class OrderedReader:
    """A group that reads a topic in order. Thread-safe."""

    def __init__(self, opened: OpenTopic, group: str) -> None:
        self._topic = opened.topic
        self._groups = opened.groups
        self._group = group
        self._lock = threading.Lock()
        self._view: _View | None = None
        self._ahead: dict[int, _Ahead] = {}
        # By partition the offset that was asked for last, and its time.
        self._times: dict[int, tuple[int, int]] = {}

    def left(self) -> int:
        """The number of unread messages."""
        _, view = self._look()
        return int(np.maximum(view.offsets.end - view.positions, 0).sum())

    def take(self) -> Taken | None:
        """The next message, or None; the group is moved past it, even if the caller fails."""
        with self._lock:
            for _ in range(TAKES_MAX):
                try:
                    return self._take_known() or self._take()
                except (OffsetOutOfRange, StaleGeneration, _Overtaken):
                    # Retention deleted the message, or the group was moved, after the position was read.
                    self._view = None
                except BaseException:
                    # The position of the group is unknown now.
                    self._view = None
                    raise
        raise Overloaded(f"the queue of readers of group {self._group!r}", TAKES_MAX, 0.0)

    def place_at(self, place: int) -> None:
        """Move the group, so that the message at this place is next; the oldest kept one if it was deleted."""
        with self._lock:
            self._view = None
            offsets = self._topic.offsets()
            written = int(offsets.end.sum())
            if not 0 <= place <= written:
                rule = f"the topic has {written} messages: the offset must be -1 to {written - 1}"
                raise InvalidInput("offset", str(place - 1), rule)
            with self._topic.using() as log:
                positions = _positions_at(log, offsets, place)
            self._groups.seek(self._group, dict(enumerate(positions.tolist())))

    def _take_known(self) -> Taken | None:
        """The next message, if it was prefetched; what was written since is after it."""
        view = self._view
        if view is None or view.deleted_before != self._topic.record.deleted_before:
            return None
        chosen = self._choose(view)
        if chosen is None:
            return None
        partition, offset = chosen.partition, chosen.offset
        ahead = self._ahead.get(partition)
        if view.committed.get(partition) != offset or ahead is None or not ahead.has(offset):
            return None
        message = self._read(*chosen)
        if not self._groups.advance(self._group, view.committed, partition):
            raise _Overtaken
        self._view = view.after(partition, offset)
        return message

    def _take(self) -> Taken | None:
        generation, view = self._look()
        chosen = self._choose(view)
        if chosen is None:
            return None
        partition, offset = chosen.partition, chosen.offset
        message = self._read(*chosen)
        if view.committed.get(partition) == offset:
            is_moved = self._groups.advance(self._group, view.committed, partition)
        else:
            is_moved = self._groups.claim(self._group, partition, offset, generation)
        if not is_moved:
            raise _Overtaken
        self._view = view.after(partition, offset)
        return message

    def _look(self) -> tuple[int, _View]:
        """The group's generation, and its position in the topic."""
        deleted_before = self._topic.record.deleted_before
        # The ends first, in one read: a concurrent commit must not be visible in one partition only.
        offsets = self._topic.offsets()
        group, committed = self._groups.standing(self._group)
        return group.generation, _View(committed, offsets, deleted_before)

    def _choose(self, view: _View) -> _Choice | None:
        """The next message by time, if there is one."""
        positions = view.positions
        waiting = np.flatnonzero(positions < view.offsets.end).tolist()
        if not waiting:
            return None
        offsets = positions.tolist()
        partition = waiting[0] if len(waiting) == 1 else self._earliest(waiting, offsets)
        return _Choice(partition, offsets[partition], int(positions.sum()), len(waiting))

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

    def _read(self, partition: int, offset: int, place: int, shares: int) -> Taken:
        ahead = self._ahead.get(partition)
        if ahead is None or not ahead.has(offset):
            messages_max, bytes_max = max(1, AHEAD_MESSAGES // shares), max(1, AHEAD_BYTES // shares)
            ahead = _Ahead(offset, self._topic.fetch(partition, offset, messages_max, bytes_max, 0.0))
            self._ahead[partition] = ahead
        message = ahead.message(offset, place)
        if not ahead.has(offset + 1):
            del self._ahead[partition]
        return message


def _positions_at(log: TopicLog, offsets: OffsetRange, place: int) -> Int64s:
    """The next offset of every partition after reading the first `place` messages of the topic in order."""
    if place <= offsets.start.sum():
        return offsets.start
    if place >= offsets.end.sum():
        return offsets.end
    partitions = range(len(offsets.end))

    def older(time_us: int) -> Int64s:
        """How far what was written before a time reaches; not beyond what there was at the look."""
        found = [log.first_at(partition, time_us) for partition in partitions]
        return np.clip(np.array(found, np.int64), offsets.start, offsets.end)

    if len(partitions) == 1:
        return np.array([place], np.int64)
    filled = [partition for partition in partitions if offsets.start[partition] < offsets.end[partition]]
    # The latest time before which at most `place` messages were written: that of the commit which contains the place.
    low = min(log.time_of(partition, int(offsets.start[partition])) or 0 for partition in filled)
    high = max(log.time_of(partition, int(offsets.end[partition]) - 1) or 0 for partition in filled) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if older(middle).sum() <= place else (low, middle)
    before, after = older(low), older(low + 1)
    # Of that commit as many messages as are missing, partition by partition.
    missing = place - before.sum() - (np.cumsum(after - before) - (after - before))
    positions: Int64s = before + np.clip(missing, 0, after - before)
    return positions

"""The log of one topic in memory: a list of batches per partition. Simple, as other engines are tested against it."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.core.hashes.columns import Int64s
from headrace.core.messages import NO_MESSAGES, read_batch
from headrace.core.publish.payload_window import PayloadWindow
from headrace.core.publish.state import Commit, TopicState
from headrace.core.reports.histogram import SECONDS, Histogram
from headrace.core.topics.retention import Piece, Sightings, droppable
from headrace.core.topics.settings import TopicSettings
from headrace.storage.catalog import TopicRecord
from headrace.storage.commits.fences import LocalFences
from headrace.storage.interface import Decide, OffsetRange
from headrace.storage.ranges import check_range, deleted_to, offsets_past
from headrace.storage.shares import read_each, within_bytes


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one partition in one commit."""

    first_offset: int
    time_us: int
    rows: pa.RecordBatch

    @property
    def end(self) -> int:
        return self.first_offset + int(self.rows.num_rows)


class MemoryLog:
    """The messages of one topic in memory. Thread-safe."""

    def __init__(self, topic: TopicRecord) -> None:
        self._topic = topic
        # As on disk, where a segment has the time of the topic's creation: no message is older than its topic.
        self._state = TopicState(np.zeros(topic.partitions, np.int64), last_time_us=topic.created_us)
        self._parts: list[list[_Part]] = [[] for _ in range(topic.partitions)]
        self._start = np.zeros(topic.partitions, np.int64)
        self._deleted_before = np.array(topic.deleted_before, np.int64)
        self._pieces: list[Piece] = []
        self._lock = threading.RLock()
        self._sightings = Sightings()
        self._fences = LocalFences()
        self.sync_seconds = Histogram(SECONDS)
        self.failure: str | None = None
        self.damaged_segments = 0

    @property
    def state(self) -> TopicState:
        """What planning knows."""
        return self._state

    def peek(self) -> TopicState:
        """What planning knows; always available."""
        return self._state

    def window(self) -> PayloadWindow:
        """The recently written payloads."""
        return self._state.window

    def commit(self, decide: Decide, store_wide: bool = False) -> None:
        """Decide, keep, apply."""
        with self._lock:
            self.take(self.decide(decide))

    @property
    def writing(self) -> threading.RLock:
        """Held between a decision and what follows from it."""
        return self._lock

    def decide(self, decide: Decide) -> list[Commit]:
        """What is to be written; the caller holds `writing`."""
        return list(decide(self._state, self._fences))

    def take(self, commits: Sequence[Commit]) -> None:
        """Keep and apply what was decided; the caller holds `writing`."""
        for commit in commits:
            self._keep(commit)
            self._state.apply(commit)
            ends = self._state.end_offsets.copy()
            self._pieces.append(Piece(commit.rows.nbytes, commit.time_us, ends))

    def _keep(self, commit: Commit) -> None:
        directory = commit.directory
        places = zip(directory.partition, directory.first_offset, directory.first_row, directory.rows, strict=True)
        for partition, first_offset, first_row, rows in places:
            part = _Part(int(first_offset), commit.time_us, commit.rows.slice(int(first_row), int(rows)))
            self._parts[partition].append(part)

    def offsets(self) -> OffsetRange:
        """Start and end of every partition."""
        with self._lock:
            deleted_before = self._deleted_before
            return offsets_past(self._start.copy(), self._state.end_offsets.copy(), (), deleted_before)

    def read(self, partition: int, offset: int, messages_max: int, bytes_max: int) -> pa.RecordBatch:
        """Messages of one partition from `offset` on, within the limits but at least one if there is one."""
        with self._lock:
            check_range(self._topic.name, self.offsets(), partition, offset)
            parts = [part for part in self._parts[partition] if part.end > offset]
        batches = []
        left = messages_max
        for part in parts:
            skip = max(0, offset - part.first_offset)
            rows = part.rows.slice(skip, left)
            times = np.full(rows.num_rows, part.time_us, np.int64)
            batches.append(read_batch(rows, partition, part.first_offset + skip, times))
            left -= rows.num_rows
            if left == 0:
                break
        batches = batches or [read_batch(NO_MESSAGES, partition, offset, np.zeros(0, np.int64))]
        whole = pa.concat_batches(batches)
        return within_bytes(whole, bytes_max)

    def read_many(self, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]:
        """Messages of many partitions, each its share, the oldest first."""
        return read_each(self, positions, messages_max, bytes_max)

    def read_ranges(self, start: Int64s, stop: Int64s, messages_max: int, bytes_max: int) -> None:
        """There is no faster way than `read_many`."""

    def first_at(self, partition: int, time_us: int) -> int:
        """The first offset of a partition at or after a time; its end offset if all messages are older."""
        with self._lock:
            parts = self._parts[partition]
            place = bisect.bisect_left(parts, time_us, key=lambda part: part.time_us)
            first = parts[place].first_offset if place < len(parts) else int(self._state.end_offsets[partition])
            return max(first, deleted_to(self._deleted_before, partition))

    def time_of(self, partition: int, offset: int) -> int | None:
        """When the message with this offset was written, or None if it does not exist."""
        with self._lock:
            if offset < deleted_to(self._deleted_before, partition):
                return None
            for part in self._parts[partition]:
                if part.first_offset <= offset < part.end:
                    return part.time_us
        return None

    def add_partitions(self, partitions: int) -> None:
        """Grow to this number of partitions."""
        with self._lock:
            added = partitions - self._state.partitions
            self._state.add_partitions(partitions)
            self._start = np.concatenate([self._start, np.zeros(added, np.int64)])
            self._parts += [[] for _ in range(added)]

    def delete_before(self, offsets: Sequence[int]) -> None:
        """Hide the messages of each partition below an offset."""
        with self._lock:
            self._deleted_before = np.array(offsets, np.int64)

    def drop_outlived(self, settings: TopicSettings, held: Int64s | None, now_us: int) -> int:
        """Drop the oldest commits that are past retention and not held; returns how many."""
        with self._lock:
            pieces = self._sightings.dated(self._pieces, now_us)
            count = droppable(pieces, settings, held, now_us, self._deleted_before)
            if count:
                ends = self._pieces[count - 1].end_offsets
                self._start[: len(ends)] = ends
                del self._pieces[:count]
                starts = self._start.tolist()
                self._parts = [
                    [part for part in parts if part.end > start]
                    for parts, start in zip(self._parts, starts, strict=True)
                ]
            return count

    def pieces(self) -> list[Piece]:
        """The commits as retention sees them."""
        with self._lock:
            return list(self._pieces)

    def seal(self) -> int:
        """Nothing to seal."""
        return 0

    def bytes_stored(self) -> int:
        """The bytes of all commits."""
        return sum(piece.bytes for piece in self._pieces)

    def close(self) -> None:
        """Nothing to release."""

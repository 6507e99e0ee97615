"""What is written reaches followers without a look at the log: each is handed the commit.

    Topic._commit ──► Wakeups.wake(partitions, written) ──► Feed.put          in the committing thread; never blocks
    Feed.read(positions)  ──► what was handed, if it continues exactly there, or else what the log has
    Feed.handed(positions)    the same without a look at the log, for those who must not block

A feed is current once a look at the log has found nothing more: whatever this server writes after that is in the feed.
It stops being current, drops what it holds and looks at the log again
- when it is woken without a commit: another server wrote, messages were deleted, the topic changed or ended;
- when what is handed does not continue where its follower is;
- when it is full, because its follower is slow, or when a commit is too large to be handed.

So what a follower gets is always what the log has. The rows of a commit are decorated once for all followers.
Thread-safe; one thread reads. The lock is held briefly, and nothing is called under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.messages import read_batch
from headrace.core.publish.state import Commit

# What is worth handing over, and how much of it waits for a follower.
HANDED_ROWS_MAX: Final = 64
HANDED_BYTES_MAX: Final = 16 << 10
FEED_COMMITS_MAX: Final = 128
FEED_BYTES_MAX: Final = 256 << 10

ReadLog = Callable[[Mapping[int, int], int, int], list[pa.RecordBatch]]


class CommitPart:
    """The rows of one partition in a commit, as a reader gets them."""

    __slots__ = ("batch", "end", "first", "partition")

    def __init__(self, partition: int, first: int, end: int, batch: pa.RecordBatch) -> None:
        self.partition = partition
        self.first = first
        self.end = end
        self.batch = batch


class WrittenCommit:
    """A small commit that was written, for all followers."""

    def __init__(self, commit: Commit, size: int) -> None:
        self.bytes = size
        self._commit = commit
        self._pieces: list[CommitPart] | None = None

    @property
    def pieces(self) -> list[CommitPart]:
        """Its rows by partition; two threads may ask at once, with the same result."""
        if self._pieces is None:
            directory, rows, time_us = self._commit.directory, self._commit.rows, self._commit.time_us
            partitions, counts = directory.partition.tolist(), directory.rows.tolist()
            starts = accumulate(counts, initial=0)
            self._pieces = [
                CommitPart(
                    partition, first, first + count, read_batch(rows.slice(start, count), partition, first, times)
                )
                for partition, first, count, start in zip(
                    partitions, directory.first_offset.tolist(), counts, starts, strict=False
                )
                for times in [np.full(count, time_us, np.int64)]
            ]
        return self._pieces


class Feed:
    """What was written lately, for one follower of a topic."""

    def __init__(
        self,
        read_log: ReadLog,
        count: Callable[[list[pa.RecordBatch]], None],
        wake: Callable[[], None] | None = None,
    ) -> None:
        """`read_log` looks at the log; `count` counts what was read without that.

        `wake` is called, or else `changed` set, whenever there may be something to read.
        """
        self._read_log = read_log
        self._count = count
        self.changed = threading.Event()
        self._wake = wake or self.changed.set
        self._lock = threading.Lock()
        self._is_current = False
        self._waiting: list[WrittenCommit] = []
        self._bytes = 0

    def put(self, written: WrittenCommit | None) -> None:
        """This was committed; None was too large to be handed, or nobody knows what has changed."""
        with self._lock:
            if self._is_current and written is not None:
                self._waiting.append(written)
                self._bytes += written.bytes
            if written is None or self._bytes > FEED_BYTES_MAX or len(self._waiting) > FEED_COMMITS_MAX:
                self._drop(is_current=False)
        self._wake()

    def read(self, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]:
        """The next messages of some partitions, or nothing; a limit of bytes holds only for what the log has."""
        handed = self.handed(positions)
        if handed is not None:
            return handed
        with self._lock:
            # Before the look: what is written from now on is handed, and what both have is left out.
            self._drop(is_current=True)
        is_all = False
        try:
            found = self._read_log(positions, messages_max, bytes_max)
            # If it found something, there may be more than the limits allowed.
            is_all = not found
        finally:
            if not is_all:
                with self._lock:
                    self._drop(is_current=False)
        return found

    def handed(self, positions: Mapping[int, int]) -> list[pa.RecordBatch] | None:
        """The next messages without a look at the log, if there are any; None if it has to be looked at."""
        handed = self._take(positions)
        if handed:
            self._count(handed)
            return handed
        with self._lock:
            return [] if self._is_current else None

    def _take(self, positions: Mapping[int, int]) -> list[pa.RecordBatch]:
        """What was handed and continues at these positions, up to the first that does not."""
        with self._lock:
            taken, self._waiting, self._bytes = self._waiting, [], 0
        batches: list[pa.RecordBatch] = []
        ends: dict[int, int] = {}
        for written in taken:
            for piece in written.pieces:
                end = ends.get(piece.partition, positions.get(piece.partition))
                if end is None or piece.end <= end:
                    continue
                if piece.first != end:
                    with self._lock:
                        self._drop(is_current=False)
                    return batches
                ends[piece.partition] = piece.end
                batches.append(piece.batch)
        return batches

    def _drop(self, is_current: bool) -> None:
        """Hold nothing; the caller holds the lock."""
        self._waiting, self._bytes, self._is_current = [], 0, is_current


def written_of(commit: Commit | None) -> WrittenCommit | None:
    """What followers are handed of a commit; None if it is too large, or keeps much memory that is not its own."""
    if commit is None or commit.rows.num_rows > HANDED_ROWS_MAX:
        return None
    size: int = commit.rows.get_total_buffer_size()
    return WrittenCommit(commit, size) if size <= HANDED_BYTES_MAX else None

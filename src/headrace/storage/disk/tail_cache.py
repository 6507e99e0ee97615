"""The tail cache of a log: its newest small commits in memory, for readers that follow the end.

Without it, a follower would map a file that has grown, search its index and decode a frame for a handful of messages.
The cache has the record batches of the last small commits as they were written, by partition and offset, and decodes
each once for all followers. It is bounded in commits and in bytes. A large commit clears it, because readers of large
commits gain nothing from it. So does a new segment: nothing here can be dropped by retention.

It holds only what is on the device, and does not decide what may be read: the caller knows the end of each partition.
What it does not have, or has in too many pieces to be quicker, is read from the segments. Thread-safe; its lock is held
briefly, and nothing is called under it.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.core.hashes.columns import Int64s
from headrace.core.messages import join
from headrace.core.publish.state import Directory
from headrace.storage.disk.files import frame

COMMITS_MAX: Final = 128
BYTES_MAX: Final = 128 << 10
# A larger commit is not cached: mapping its frame is cheap compared with its rows.
TAIL_COMMIT_BYTES_MAX: Final = 16 << 10
# For more commits than this, decoding the frames of a segment together is quicker.
PIECES_MAX: Final = 16


@dataclass(slots=True, eq=False)
class _Commit:
    """A small commit: its record batch as written, and decoded after the first read."""

    body: Any
    columns: int
    time_us: int
    partitions: list[int]
    rows: pa.RecordBatch | None = None

    def decoded(self) -> pa.RecordBatch:
        rows = self.rows
        if rows is None:
            # Two readers may do this at once, with the same result.
            rows = self.rows = frame.decode_rows(self.body, self.columns)
        return rows


class _Piece(NamedTuple):
    """One partition's rows in a commit."""

    first_offset: int
    end_offset: int
    first_row: int
    commit: _Commit


class TailCache:
    """The newest small commits of a topic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commits: deque[_Commit] = deque()
        self._pieces: dict[int, deque[_Piece]] = {}
        self._bytes = 0

    def append(self, header: frame.Header, directory: Directory, body: Any) -> None:
        """Add a frame that is on the device; a large one, which needs no body, clears the cache."""
        if header.body_bytes > TAIL_COMMIT_BYTES_MAX:
            self.clear()
            return
        partitions = directory.partition.tolist()
        commit = _Commit(body, header.columns, header.time_us, partitions)
        with self._lock:
            first_row = 0
            for partition, first, rows in zip(
                partitions, directory.first_offset.tolist(), directory.rows.tolist(), strict=True
            ):
                piece = _Piece(first, first + rows, first_row, commit)
                self._pieces.setdefault(partition, deque()).append(piece)
                first_row += rows
            self._commits.append(commit)
            self._bytes += header.body_bytes
            while len(self._commits) > COMMITS_MAX or self._bytes > BYTES_MAX:
                self._forget_oldest()

    def read(self, partition: int, offset: int, stop: int) -> tuple[pa.RecordBatch, Int64s] | None:
        """Stored rows from `offset` up to `stop` with their times, or None unless all are cached, in few pieces."""
        pieces = self._find(partition, offset, stop)
        if pieces is None:
            return None
        parts, times, counts = [], [], []
        for piece in pieces:
            skip = max(0, offset - piece.first_offset)
            count = min(stop, piece.end_offset) - piece.first_offset - skip
            parts.append(piece.commit.decoded().slice(piece.first_row + skip, count))
            times.append(piece.commit.time_us)
            counts.append(count)
        return join(parts), np.repeat(np.array(times, np.int64), counts)

    def time_of(self, partition: int, offset: int) -> int | None:
        """When the message with this offset was written, or None if it is not cached."""
        pieces = self._find(partition, offset, offset + 1)
        return pieces[0].commit.time_us if pieces else None

    def _find(self, partition: int, offset: int, stop: int) -> list[_Piece] | None:
        """The pieces that hold these offsets, in their order."""
        found: list[_Piece] = []
        with self._lock:
            for piece in reversed(self._pieces.get(partition, ())):
                if piece.first_offset < stop:
                    found.append(piece)
                if piece.first_offset <= offset:
                    return found[::-1]
                if len(found) == PIECES_MAX:
                    break
        return None

    def clear(self) -> None:
        """Clear the cache."""
        with self._lock:
            self._commits.clear()
            self._pieces.clear()
            self._bytes = 0

    def _forget_oldest(self) -> None:
        """The caller holds the lock."""
        oldest = self._commits.popleft()
        self._bytes -= len(oldest.body)
        for partition in oldest.partitions:
            pieces = self._pieces[partition]
            pieces.popleft()
            if not pieces:
                del self._pieces[partition]

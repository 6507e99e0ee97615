"""Follows partitions: an iterator of batches as they arrive, which ends when it is closed."""

from __future__ import annotations

from collections import deque
from types import TracebackType

import pyarrow as pa

from headrace.client import fork
from headrace.client.consumer.prefetch import Prefetch
from headrace.client.read.decode import Broken, Decoder, Packed, Passed, Piece
from headrace.core.errors import Closed, again


class Following:
    """An endless iterator of batches, each of one partition. Close it, or use it as a context manager.

    Any thread may close it. A value that cannot be decoded by its codec raises `Undecodable` each time it is reached,
    after the messages before it were returned, unless `on_undecodable` says otherwise. To skip it, follow again from
    the next offset.
    """

    def __init__(self, prefetch: Prefetch, decoder: Decoder | None) -> None:
        self._generation = fork.generation
        self._prefetch = prefetch
        self._decoder = decoder
        self._left: deque[Piece] = deque()
        self._skipped = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<headrace.Following of topic {self._prefetch.topic!r}{' (closed)' if self._closed else ''}>"

    def __iter__(self) -> Following:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = self.next()
        while batch is None:
            batch = self.next()
        return batch

    def next(self, timeout: float | None = None) -> pa.RecordBatch | None:
        """The next batch, or None on timeout."""
        batch = self.take(timeout)
        if batch is None and self._closed:
            raise StopIteration
        return batch

    def take(self, timeout: float | None = None) -> pa.RecordBatch | None:
        """The next batch, or None on timeout or when it is closed."""
        fork.check(self._generation, "this reader")
        while True:
            while self._left and not self._closed:
                piece = self._left[0]
                if isinstance(piece, Broken):
                    raise again(piece.error)
                self._left.popleft()
                if isinstance(piece, pa.RecordBatch):
                    return piece
                self._pass(piece)
            try:
                batch = self._prefetch.take(timeout)
            except Closed:
                if self._closed:
                    return None
                raise
            if batch is None or self._decoder is None:
                return batch
            self._left.extend(self._decoder.pieces(batch))

    def _pass(self, piece: Passed | Packed) -> None:
        if isinstance(piece, Passed):
            self._skipped += piece.count
        elif self._decoder is not None:
            self._left.extendleft(reversed(self._decoder.pieces(piece.batch)))

    @property
    def skipped(self) -> int:
        """The number of messages that were skipped because their values cannot be decoded."""
        return self._skipped

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._closed

    def close(self) -> None:
        """Stop following."""
        self._closed = True
        if self._generation == fork.generation:
            self._prefetch.close()

    def __enter__(self) -> Following:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

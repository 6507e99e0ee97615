"""Prefetch: a thread follows some partitions over one stream into a buffer of limited size.

When the buffer is full the thread stops reading, and the flow control of the stream slows the server down. When the
stream breaks the thread follows again from its position, for up to the patience since a stream last worked. Messages
that retention deleted meanwhile are skipped, with a warning in the log. Any other error is raised to the consumer, once
everything before it was taken.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from headrace.client.consumer.progress import positions_behind
from headrace.client.retry import Backoff
from headrace.client.transport.transport import ReadStream, Transport
from headrace.core.errors import Closed, HeadraceError, OffsetOutOfRange, ServerFailed, again
from headrace.core.limits import FETCH_BYTES_DEFAULT, FETCH_MESSAGES_MAX
from headrace.core.retry import is_transient
from headrace.wire.tickets import Follow

logger = logging.getLogger(__name__)

# One reading of the server is at most this part of the buffer, so that one is made while another is used. It is divided
# among the partitions, and a batch of a few hundred messages costs the server as much as one of thousands.
_SHARE: Final = 2
_WAIT_SECONDS_MAX: Final = 1.0
_SMALL_BYTES: Final = 4096


class Prefetch:
    """Batches of some partitions in the order of each; one batch is of one partition, unless they may be mixed."""

    def __init__(
        self,
        transport: Transport,
        topic: str,
        positions: Mapping[int, int],
        bytes_max: int,
        patience_seconds: float,
        mixed: bool = False,
        growing: bool = False,
        news: Callable[[], None] | None = None,
    ) -> None:
        self._transport = transport
        self.topic = topic
        self._positions = dict(positions)
        self._bytes_max = bytes_max
        self._patience_seconds = patience_seconds
        self._mixed = mixed
        self._growing = growing
        # Called when `take` may have something, for those who wait for several.
        self._news = news
        self._changed = threading.Condition()
        # With the size of each.
        self._batches: deque[tuple[pa.RecordBatch, int]] = deque()
        self._bytes = 0
        self._error: HeadraceError | None = None
        # Whether the stream that is followed has given anything, and when the server opened it; the thread's own.
        self._has_read, self._opened_at = False, math.inf
        self._awoken = False
        self._stop = threading.Event()
        self._stream: ReadStream | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-prefetch", daemon=True)
        if self._positions:
            self._thread.start()

    def take(self, timeout_seconds: float | None) -> pa.RecordBatch | None:
        """The next batch; None on timeout, or after a wake."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        with self._changed:
            while not self._batches:
                if self._error is not None:
                    raise again(self._error)
                left = None if deadline is None else deadline - time.monotonic()
                if self._awoken or (left is not None and left <= 0):
                    self._awoken = False
                    return None
                # Not for ever: a signal handler may wake just before the wait.
                self._changed.wait(_WAIT_SECONDS_MAX if left is None else min(left, _WAIT_SECONDS_MAX))
            batch, size = self._batches.popleft()
            self._bytes -= size
            self._changed.notify_all()
            return batch

    def wake(self) -> None:
        """Wake the thread that waits in `take`."""
        with self._changed:
            self._awoken = True
            self._tell()

    def close(self) -> None:
        """Stop reading."""
        with self._changed:
            self._stop.set()
            self._error = self._error or Closed("the consumer")
            stream = self._stream
            self._tell()
        if stream is not None:
            stream.cancel()

    def _run(self) -> None:
        """The top of the thread."""
        try:
            self._follow_for_ever()
        except HeadraceError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("prefetch of topic %r failed", self.topic)
            self._fail(ServerFailed(f"prefetch failed: {error!r}"))

    def _fail(self, error: HeadraceError) -> None:
        with self._changed:
            self._error = self._error or error
            self._tell()

    def _follow_for_ever(self) -> None:
        backoff: Backoff | None = None
        while not self._stop.is_set():
            self._has_read, self._opened_at = False, math.inf
            try:
                self._follow()
                error: HeadraceError = Closed("the stream")
            except OffsetOutOfRange as late:
                self._skip(late)
                continue
            except HeadraceError as failure:
                if not is_transient(failure):
                    raise
                error = failure
            if isinstance(error, Closed) and self._stop.is_set():
                return
            # Patience is with a server that does not serve: one that gave messages or kept a stream open did.
            if backoff is None or self._has_read or time.monotonic() - self._opened_at >= self._patience_seconds:
                backoff = Backoff(self._patience_seconds, self._stop)
            if not backoff.wait(error):
                raise error

    def _follow(self) -> None:
        """Read one stream to its end."""
        share = max(1, min(FETCH_BYTES_DEFAULT, self._bytes_max // _SHARE))
        follow = Follow(self.topic, self._positions, FETCH_MESSAGES_MAX, share, self._mixed, self._growing)
        stream = self._transport.read(follow)
        self._opened_at = time.monotonic()
        with self._changed:
            self._stream = stream
        if self._stop.is_set():
            stream.cancel()
        while (batch := stream.read()) is not None:
            self._has_read = True
            self._keep(batch)

    def _keep(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        positions, size = positions_behind(batch), _size_of(batch)
        with self._changed:
            while self._bytes >= self._bytes_max and not self._stop.is_set():
                self._changed.wait()
            self._positions.update(positions)
            self._batches.append((batch, size))
            self._bytes += size
            self._tell()

    def _tell(self) -> None:
        """There may be something to take; the caller holds the lock."""
        self._changed.notify_all()
        if self._news is not None:
            self._news()

    def _skip(self, late: OffsetOutOfRange) -> None:
        if late.offset >= late.start:
            raise late
        logger.warning("%s; reading continues at the oldest message kept", late)
        self._positions[late.partition] = late.start


def _size_of(batch: pa.RecordBatch) -> int:
    """The bytes of a batch; for a small one those of its buffers, which may be more, but are much cheaper to get."""
    size: int = batch.get_total_buffer_size()
    return size if size <= _SMALL_BYTES else batch.nbytes

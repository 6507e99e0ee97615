"""The buffer: where messages wait until they are sent, bounded in bytes.

Senders add to the open batch under one lock. If nothing is in flight, the batch is sent at once, without a timer.
Otherwise messages are collected until the answer arrives, the batch is full or has lingered long enough, a whole batch
is added after it, or `flush` is called; then the sender thread takes it. So the busier the connection, the larger the
batches. Bytes count until they are answered. When the buffer is full, `send` waits, and raises after its timeout.

A small message before which nothing is waiting or under way may be written by the thread that sends it (`write_now`).
That is only while the sender thread is parked in `take`, which returns nothing meanwhile: one thread writes at a time.
What was not put in flight, because it cannot be written or its thread was interrupted, is left to the sender thread.

The lock is reentrant: a producer that was never closed may be garbage-collected, and its buffer closed, at any point.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from headrace.client.producer.batch import MESSAGE_OVERHEAD_BYTES, PendingBatch
from headrace.client.producer.futures import BatchFuture, MessageFuture
from headrace.core.errors import Closed, HeadraceError, Overloaded, again
from headrace.core.limits import PRODUCER_BATCH_MESSAGES

# What a caller may write itself: it never fills the buffer of a connection.
_NOW_BYTES_MAX: Final = 16 << 10


class SendBuffer:
    """The waiting messages. Thread-safe."""

    def __init__(self, linger_seconds: float, batch_bytes_max: int, buffer_bytes_max: int) -> None:
        self._linger_seconds = linger_seconds
        self._batch_bytes_max = batch_bytes_max
        self._buffer_bytes_max = buffer_bytes_max
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._open = PendingBatch()
        self._ready: deque[PendingBatch] = deque()
        self._bytes = 0
        # Taken by the sender, and not answered yet.
        self._under_way = 0
        self._last: PendingBatch | None = None
        # How a caller writes a batch, if it may; what one writes now; whether the sender thread waits in `take`.
        self.write_now: Callable[[PendingBatch], None] | None = None
        self._written_now: PendingBatch | None = None
        self._writer = 0
        self._is_parked = False
        self._awoken = False
        self._ending = False
        self._refusal: HeadraceError | None = None

    def add(
        self,
        value: bytes | None,
        key: bytes | None,
        attributes: Mapping[str, bytes | None] | None,
        partition: int | None,
        created_us: int | None,
        seqno: int | None,
        size: int,
        timeout_seconds: float,
    ) -> MessageFuture:
        """Add one message to the open batch, or write it at once."""
        size += MESSAGE_OVERHEAD_BYTES
        pending: PendingBatch | None = None
        try:
            with self._lock:
                if self._refusal is not None or self._bytes + size > self._buffer_bytes_max:
                    self._wait_for_room(size, timeout_seconds)
                pending = self._open
                values = pending.values
                row = len(values)
                values.append(value)
                pending.keys.append(key)
                if attributes is not None:
                    pending.set("attributes", attributes)
                if partition is not None:
                    pending.set("partition", partition)
                if created_us is not None:
                    pending.set("created_at", created_us)
                if seqno is not None:
                    pending.set("seqno", seqno)
                pending.bytes += size
                self._bytes += size
                if row == 0:
                    pending.since = time.monotonic()
                    if self.write_now is not None and size <= _NOW_BYTES_MAX and self._is_alone():
                        self._writer = threading.get_ident()
                        self._written_now = pending
                        self._open = PendingBatch()
                        self._taken(pending)
                    else:
                        self._work.notify()
                elif pending.bytes >= self._batch_bytes_max or row + 1 >= PRODUCER_BATCH_MESSAGES:
                    self._close_open()
            if self._written_now is pending and self.write_now is not None:
                self.write_now(pending)
        finally:
            if pending is not None and self._written_now is pending:
                self._end_write(pending)
        return MessageFuture(pending.outcome, row)

    def is_written_here(self) -> bool:
        """Whether this thread is writing a message, which a signal handler may interrupt."""
        return self._written_now is not None and self._writer == threading.get_ident()

    def _is_alone(self) -> bool:
        """Whether nothing but the open batch waits or is under way, and the sender thread does nothing."""
        return self._is_parked and self._written_now is None and not self._under_way and not self._ready

    def _end_write(self, pending: PendingBatch) -> None:
        """The caller has written a batch; or it has not, and the sender thread is to."""
        with self._lock:
            self._written_now = None
            if not (pending.is_in_flight or pending.is_released):
                pending.is_taken = False
                self._under_way -= 1
                self._ready.appendleft(pending)
            if self._ready or self._open.values or self._awoken or self._ending:
                self._work.notify()

    def add_batch(self, batch: pa.RecordBatch, is_repeatable: bool, timeout_seconds: float) -> BatchFuture:
        """Add a batch after everything added before."""
        pending = PendingBatch(batch)
        pending.is_repeatable = is_repeatable
        with self._lock:
            if self._refusal is not None or self._bytes + pending.bytes > self._buffer_bytes_max:
                self._wait_for_room(pending.bytes, timeout_seconds)
            self._close_open()
            self._bytes += pending.bytes
            self._ready.append(pending)
            self._work.notify()
        return BatchFuture(pending.outcome)

    def take(self) -> PendingBatch | None:
        """Wait for a batch that is due; None after a wake, or when the buffer is closed and empty."""
        with self._lock:
            while True:
                wait_seconds = None
                if self._written_now is None:
                    if self._awoken:
                        self._awoken = False
                        return None
                    if self._ready:
                        return self._taken(self._ready.popleft())
                    if self._open.values:
                        wait_seconds = self._open.since + self._linger_seconds - time.monotonic()
                        if not self._under_way or wait_seconds <= 0 or self._ending:
                            pending, self._open = self._open, PendingBatch()
                            return self._taken(pending)
                    elif self._ending:
                        return None
                self._is_parked = True
                self._work.wait(wait_seconds)
                self._is_parked = False

    @property
    def is_ended(self) -> bool:
        """Whether the buffer is closed and empty."""
        return self._ending and not self._ready and not self._open.values

    def wake(self) -> None:
        """Wake the thread that waits in `take`."""
        with self._lock:
            self._awoken = True
            self._work.notify()

    def release(self, pending: PendingBatch) -> None:
        """The outcome of a batch is known: release its space."""
        with self._lock:
            if pending.is_released:
                return
            pending.is_released = True
            self._bytes -= pending.bytes
            if pending.is_taken:
                self._under_way -= 1
                if not self._under_way and self._open.values:
                    self._work.notify()
            self._room.notify_all()

    def flush(self) -> PendingBatch | None:
        """Make everything due; returns the last batch in flight, if any."""
        with self._lock:
            self._close_open()
            self._work.notify()
            return self._ready[-1] if self._ready else self._last

    def end(self) -> None:
        """Accept nothing more."""
        with self._lock:
            self._refusal = self._refusal or Closed("the producer")
            self._ending = True
            self._work.notify()
            self._room.notify_all()

    def refuse(self, error: HeadraceError | None) -> list[PendingBatch]:
        """Return all waiting batches; with an error, accept nothing more."""
        with self._lock:
            if error is not None:
                self._refusal = error
            self._close_open()
            refused = list(self._ready)
            self._ready.clear()
            self._room.notify_all()
            return refused

    def _taken(self, pending: PendingBatch) -> PendingBatch:
        self._last = pending
        pending.is_taken = True
        self._under_way += 1
        return pending

    def _close_open(self) -> None:
        if self._open.values:
            self._ready.append(self._open)
            self._open = PendingBatch()
            self._work.notify()

    def _wait_for_room(self, size: int, timeout_seconds: float) -> None:
        """The caller holds the lock. What is larger than the whole buffer may enter when it is empty."""
        deadline = time.monotonic() + timeout_seconds
        while self._refusal is None and self._is_full(size):
            # The open batch must be sent: nothing else frees space.
            self._close_open()
            left = deadline - time.monotonic()
            if left <= 0:
                raise Overloaded("the buffer of the producer", self._buffer_bytes_max, timeout_seconds)
            self._room.wait(left)
        if self._refusal is not None:
            raise again(self._refusal)

    def _is_full(self, size: int) -> bool:
        return self._bytes > 0 and self._bytes + size > self._buffer_bytes_max

"""Follows over the native wire what is written, and over Flight what was written before.

What arrives now in small batches takes few steps over the native wire. A reader that is behind gets large batches, for
which Flight is the better way: the server says so (`NativeFollow.is_behind`). A few small batches over Flight mean that
it has caught up. One thread reads; any may cancel.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import pyarrow as pa
from msgspec import structs

from headrace.client.consumer.progress import positions_behind
from headrace.client.transport.native import NativeFollow
from headrace.client.transport.transport import ReadStream
from headrace.wire.tickets import Follow

_SMALL_BYTES: Final = 64 << 10
_SMALL_BATCHES: Final = 4
# Changing takes some milliseconds: how long to stay at least, twice as long each time.
_STAY_SECONDS: Final = 1.0
_STAY_SECONDS_MAX: Final = 64.0

Open = Callable[[Follow], ReadStream]


class NoticedFollow:
    """A follow over the native wire, whose failures are noticed as those of Flight."""

    def __init__(self, follow: NativeFollow, noticing: AbstractContextManager[None]) -> None:
        self._follow = follow
        self._noticing = noticing

    @property
    def is_behind(self) -> bool:
        """Whether it ended because too much is to be read."""
        return self._follow.is_behind

    def read(self) -> pa.RecordBatch | None:
        """Wait for the next batch; None at the end."""
        with self._noticing:
            return self._follow.read()

    def cancel(self) -> None:
        """Cancel the stream."""
        self._follow.cancel()


class FollowStream:
    """One follow, over the one wire or the other."""

    def __init__(self, ticket: Follow, open_near: Open, open_far: Open) -> None:
        """`open_near` follows over the native wire if it can, and `open_far` over Flight."""
        self._ticket = ticket
        self._positions = dict(ticket.positions)
        self._open_near = open_near
        self._open_far = open_far
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._small, self._opened_at, self._stay_seconds = 0, time.monotonic(), _STAY_SECONDS
        self._stream = open_near(ticket)

    def read(self) -> pa.RecordBatch | None:
        """Wait for the next batch; None at the end."""
        while True:
            stream = self._stream
            if not isinstance(stream, NoticedFollow) and self._has_caught_up():
                self._change(self._open_near)
                self._stay_seconds = min(2 * self._stay_seconds, _STAY_SECONDS_MAX)
                continue
            batch = stream.read()
            if batch is not None:
                self._positions.update(positions_behind(batch))
                if not isinstance(stream, NoticedFollow):
                    self._small = self._small + 1 if batch.nbytes < _SMALL_BYTES else 0
                return batch
            if self._is_cancelled or not (isinstance(stream, NoticedFollow) and stream.is_behind):
                return None
            self._change(self._open_far)

    def cancel(self) -> None:
        """Cancel the stream."""
        with self._lock:
            self._is_cancelled = True
            stream = self._stream
        stream.cancel()

    def _has_caught_up(self) -> bool:
        return self._small >= _SMALL_BATCHES and time.monotonic() - self._opened_at >= self._stay_seconds

    def _change(self, open_: Open) -> None:
        self._stream.cancel()
        stream = open_(structs.replace(self._ticket, positions=dict(self._positions)))
        self._small, self._opened_at = 0, time.monotonic()
        with self._lock:
            self._stream = stream
            is_cancelled = self._is_cancelled
        if is_cancelled:
            stream.cancel()

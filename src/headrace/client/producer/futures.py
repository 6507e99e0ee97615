"""Futures of sent messages, as cheap as possible: those of one batch share its outcome.

A message has its outcome when its batch has one, so a future is only a row of an `Outcome`: creating one allocates no
lock, and a batch of thousands is resolved by one assignment. For callers they are ordinary concurrent futures:
`concurrent.futures.wait`, `asyncio.wrap_future` and callbacks work. They cannot be cancelled.

Who waits in `result` may read the answer itself (`stream`). Whatever else is asked of a future says that nobody does
yet, so that the thread of the stream has to.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from headrace.client.producer.receipt import Receipt
from headrace.core.errors import HeadraceError, again
from headrace.wire.answers import decode_answer, encode_written
from headrace.wire.native import WrittenAt

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


class AnswerReader(Protocol):
    """Reads answers."""

    def wait_for(self, outcome: Outcome, timeout_seconds: float | None) -> None:
        """Read in this thread until this is decided, or the time is over; returns at once if another thread reads."""

    def attend(self) -> None:
        """Have another thread read."""


class Outcome:
    """The outcome of one batch: receipts, or an error. Thread-safe."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.state = PENDING
        # Who has the answer read, if that may be the thread that waits for it.
        self.stream: AnswerReader | None = None
        self._receipts: pa.RecordBatch | WrittenAt | None = None
        self.error: HeadraceError | None = None
        self.is_reported = False
        self.waiters: dict[Future[Any], list[Any]] = {}
        self.callbacks: dict[Future[Any], list[Callable[[Any], object]]] = {}
        self._columns: tuple[list[Any], ...] | None = None

    def decide(self, receipts: pa.RecordBatch | WrittenAt | None, error: HeadraceError | None) -> None:
        """Give all futures their result at once; what is decided stays so."""
        with self.condition:
            if self.is_decided:
                return
            self._receipts, self.error, self.stream = receipts, error, None
            self.state = FINISHED
            for future, waiters in self.waiters.items():
                for waiter in waiters:
                    (waiter.add_result if error is None else waiter.add_exception)(future)
            self.condition.notify_all()
        for future, callbacks in self.callbacks.items():
            for callback in callbacks:
                _call(callback, future)

    @property
    def is_decided(self) -> bool:
        """Whether there is one."""
        return self.state == FINISHED

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the outcome; False on timeout."""
        left = self.read(timeout)
        with self.condition:
            return self.condition.wait_for(lambda: self.is_decided, left)

    def read(self, timeout: float | None) -> float | None:
        """Read the answer in this thread, if no other does; returns what is left of the time."""
        stream = self.stream
        if stream is None:
            return timeout
        began = time.monotonic()
        stream.wait_for(self, timeout)
        return None if timeout is None else max(0.0, began + timeout - time.monotonic())

    def attend(self) -> None:
        """Have the answer read: this thread does not wait for it here."""
        stream = self.stream
        if stream is not None:
            stream.attend()

    @property
    def receipts(self) -> pa.RecordBatch | None:
        """Those of all rows."""
        if isinstance(self._receipts, WrittenAt):
            return decode_answer(encode_written(*self._receipts))
        return self._receipts

    def receipt(self, row: int) -> Receipt:
        """The receipt of one row."""
        if isinstance(self._receipts, WrittenAt):
            return Receipt(*self._receipts, "written")
        if self._columns is None:
            assert self.receipts is not None, "the outcome is decided"
            self._columns = tuple(column.to_pylist() for column in self.receipts.columns)
        partitions, offsets, statuses = self._columns
        return Receipt(partitions[row], offsets[row], statuses[row])


def _call(callback: Callable[[Any], object], future: Future[Any]) -> None:
    try:
        callback(future)
    except Exception:
        # As concurrent futures do: a callback must not hurt the thread that it is called in.
        logger.exception("a callback of a future raised")


class _OfBatch(Future[Value], Generic[Value]):
    """A future that has nothing of its own; the parts that concurrent futures look at are those of the outcome."""

    _outcome: Outcome

    def cancel(self) -> bool:
        """Always false: a sent message cannot be cancelled."""
        return False

    def result(self, timeout: float | None = None) -> Value:
        """The result, or its error raised; TimeoutError if there is none in time."""
        return super().result(self._outcome.read(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None; TimeoutError if there is neither in time."""
        return super().exception(self._outcome.read(timeout))

    @property
    def failure(self) -> HeadraceError | None:
        """The error, for those who only look: it still counts as not reported."""
        return self._outcome.error

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return self._outcome.condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        self._outcome.attend()
        return self._outcome.state

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self._outcome.waiters.setdefault(self, [])

    @property
    def _done_callbacks(self) -> list[Callable[[Any], object]]:
        return self._outcome.callbacks.setdefault(self, [])

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        error = self._outcome.error
        if error is None:
            return None
        # A caller that asks for the result gets it raised: it need not be logged too.
        self._outcome.is_reported = True
        return again(error)


class MessageFuture(_OfBatch[Receipt]):
    """The future receipt of one message."""

    def __init__(self, outcome: Outcome, row: int) -> None:
        self._outcome = outcome
        self._row = row

    @property
    def _result(self) -> Receipt:  # type: ignore[override]
        return self._outcome.receipt(self._row)


class BatchFuture(_OfBatch[pa.RecordBatch]):
    """The future receipts of a batch that was sent as a whole."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    @property
    def _result(self) -> pa.RecordBatch:  # type: ignore[override]
        return self._outcome.receipts

"""Group commit: publishers that wait at the same time share one commit and one sync.

A request flows one way; each step passes a value to the next:

    Broker.publish          checks its arguments, creates a Request
    CommitQueue.publish     waits for space and for its turn (Combiner); the leader takes as many as fit a frame
    Topic._commit           commits the requests taken, for all of their publishers
      CommitBuilder           checks their rows
      TopicLog.commit         calls the builder under the write lock, with the current state
        CommitBuilder.build     state, fences -> commits, as values: changes nothing
        write, sync             the commits, as frames or rows of the engine
        TopicState.apply        the written commits, as recovery does
      CommitBuilder.answer    receipts for each request, a summary for counters
    Combiner                wakes the others, one after another

There is no writing thread: of the publishers of a topic that wait at the same time one commits for all (`combiner`).

The queue is bounded. If it is full, a publisher waits in line for space, so that small requests do not starve a large
one; if there is none in time it gets an error and nothing of its request was accepted. Once a request is in the queue,
its outcome is awaited, however long it takes. Callers that cannot block a thread reserve space first, by `admit`; they
wait in the same line, and are called back when it is their turn.

Lock order: the queue's lock is never held while committing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from headrace.broker.publish.combiner import Combiner, Waiter
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import HeadraceError, OutcomeUnknown, Overloaded, again
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
from headrace.core.reports.histogram import SECONDS, Histogram

_SMALL_BYTES: Final = 4096
# How often closing a queue checks whether it is empty, in case it was not notified.
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Fence:
    """Who publishes: the producer that was opened with an epoch for a source. A newer one fences it."""

    source: tuple[str, str]
    epoch: int


@dataclass(slots=True, eq=False)
class BatchParts:
    """Parts of a request's one batch, in order, that do not depend on each other.

    rows: how many each has.
    refused: the errors of those that break a rule; the receipts are of the others.
    """

    rows: Sequence[int]
    refused: dict[int, Exception] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Request(Waiter):
    """What one publisher wants to write, and the outcome; staged rows were checked when they were staged."""

    batches: Sequence[pa.RecordBatch]
    key: CommitKey | None = None
    is_checked: bool = False
    fence: Fence | None = None
    parts: BatchParts | None = None
    rows: int = 0
    bytes: int = 0
    receipts: Receipts | None = None
    error: Exception | None = None
    # Whether it counts in the size of the queue.
    is_counted: bool = False
    # For one that waits in line without a thread: called once it is admitted, or the queue closed.
    wake: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        for batch in self.batches:
            self.rows += batch.num_rows
            self.bytes += _size_of(batch)

    @property
    def accepted_rows(self) -> int:
        """The rows of which it gets receipts: those of refused parts are not among them."""
        parts = self.parts
        return self.rows if parts is None else self.rows - sum(parts.rows[place] for place in parts.refused)

    @property
    def outcome(self) -> Receipts | Exception:
        """The receipts, or the error."""
        if self.error is not None:
            return self.error
        assert self.receipts is not None, "the request was decided"
        return self.receipts


def _size_of(batch: pa.RecordBatch) -> int:
    """The bytes of a batch; for a small one those of its buffers, which may be more, but are much cheaper to get."""
    size: int = batch.get_total_buffer_size()
    return size if size <= _SMALL_BYTES else batch.nbytes


class CommitQueue(Combiner[Request]):
    """The waiting publishers of one topic. Thread-safe."""

    def __init__(
        self, topic: str, commit: Callable[[Sequence[Request]], None], messages_max: int, settings: BrokerSettings
    ) -> None:
        super().__init__()
        self.topic = topic
        self.messages_max = messages_max
        self._settings = settings
        self.seconds = Histogram(SECONDS)
        self._commit = commit
        self._room = threading.Condition(self._lock)
        self._line: deque[Request] = deque()
        self._messages = 0
        self._bytes = 0
        self._closed: HeadraceError | None = None

    @property
    def depth(self) -> int:
        """The number of waiting messages, including those being written."""
        return self._messages

    @property
    def bytes(self) -> int:
        """The bytes of the waiting requests."""
        return self._bytes

    def publish(self, request: Request, timeout_seconds: float) -> Receipts:
        """Wait until the request is written, or raise its error."""
        self.publish_many([request], timeout_seconds)
        if request.error is not None:
            raise request.error
        assert request.receipts is not None, "the request was decided"
        return request.receipts

    def publish_many(self, requests: Sequence[Request], timeout_seconds: float) -> None:
        """Wait until every request is written or refused; each has its outcome. They may share a commit.

        Requests enter as far as there is space; the first waits for it like any other.
        """
        began = time.perf_counter()
        left = deque(requests)
        while left:
            entered: list[Request] = []
            try:
                self._enter(left, entered, timeout_seconds)
                self.wait(entered)
            except BaseException:
                self.abandon(entered)
                with self._lock:
                    self.forget(left)
                raise
        self.seconds.observe(time.perf_counter() - began, len(requests))

    def close(self, reason: HeadraceError) -> None:
        """Refuse new requests, and wait for those in the queue."""
        with self._lock:
            self._closed = reason
            for request in [request for request in self._line if request.wake is not None]:
                self._line.remove(request)
                _tell(request)
            self._room.notify_all()
            while self._leading is not None:
                self._idle.wait(_LOOK_SECONDS)

    def closed_reason(self) -> HeadraceError | None:
        """Why new requests are refused, or None."""
        return None if self._closed is None else again(self._closed)

    def admit(self, request: Request, wake: Callable[[], None]) -> None:
        """Admit a request, if there is space; otherwise it waits in line, and `wake` is called once it is admitted.

        It is also called if the queue is closed. Then publish or withdraw the request.
        """
        with self._lock:
            if self._closed is not None:
                raise again(self._closed)
            if not self._line and not self._is_full(request):
                self._count(request)
            else:
                request.wake = wake
                self._line.append(request)

    def withdraw(self, request: Request) -> None:
        """Withdraw a request that was not published."""
        with self._lock:
            if request in self._line:
                self._line.remove(request)
            self.forget([request])

    def merged(self, requests: Sequence[Request], batch: pa.RecordBatch) -> Request:
        """One request that replaces several admitted ones without batches, with their size."""
        together = Request([batch])
        with self._lock:
            together.rows = sum(request.rows for request in requests)
            together.bytes = sum(request.bytes for request in requests)
            together.is_counted = True
            for request in requests:
                request.is_counted = False
        return together

    def _enter(self, left: deque[Request], entered: list[Request], timeout_seconds: float) -> None:
        """Put the first request into the queue, and those after it that fit."""
        with self._lock:
            if not left[0].is_counted and (self._line or self._is_full(left[0])):
                self._wait_for_room(left[0], timeout_seconds)
            if self._closed is not None:
                raise again(self._closed)
            self._append(left.popleft(), entered)
            while left and (left[0].is_counted or not (self._line or self._is_full(left[0]))):
                self._append(left.popleft(), entered)
            self.come(entered[0])

    def _append(self, request: Request, entered: list[Request]) -> None:
        entered.append(request)
        request.decided.acquire()
        if not request.is_counted:
            self._count(request)
        self._waiting.append(request)

    def _count(self, request: Request) -> None:
        request.is_counted = True
        self._messages += request.rows
        self._bytes += request.bytes

    def _admit_waiting(self) -> None:
        """Admit those at the head of the line that have no thread, as far as there is space; wake the others."""
        while self._line and self._line[0].wake is not None and not self._is_full(self._line[0]):
            request = self._line.popleft()
            self._count(request)
            _tell(request)
        self._room.notify_all()

    def _wait_for_room(self, request: Request, timeout_seconds: float) -> None:
        """Wait in line; the caller holds the lock."""
        deadline = time.monotonic() + timeout_seconds
        self._line.append(request)
        try:
            while self._closed is None and (self._line[0] is not request or self._is_full(request)):
                left = deadline - time.monotonic()
                if left <= 0:
                    queue = f"the publish queue of topic {self.topic!r}"
                    raise Overloaded(queue, self.messages_max, timeout_seconds)
                self._room.wait(left)
        finally:
            self._line.remove(request)
            self._admit_waiting()

    def _is_full(self, request: Request) -> bool:
        """Whether there is no space; a request that is larger than the queue may enter an empty one."""
        bytes_max = self._settings.queue_bytes
        too_many = self._messages + request.rows > self.messages_max or self._bytes + request.bytes > bytes_max
        return too_many and self._messages > 0

    def work(self, taken: Sequence[Request]) -> None:
        """Commit some requests, or give each its error."""
        try:
            self._commit(taken)
        except Exception as error:
            _fail(taken, error)
        except BaseException as interrupt:
            _fail(taken, OutcomeUnknown(self.topic, f"the publisher that wrote was interrupted: {interrupt!r}"))
            raise

    def take(self, taken: list[Request]) -> None:
        """The first requests, as many as fit one frame, at least one."""
        rows = size = 0
        while self._waiting:
            first = self._waiting[0]
            rows, size = rows + first.rows, size + first.bytes
            if taken and (rows > self._settings.frame_rows or size > self._settings.frame_bytes):
                break
            taken.append(first)
            self._waiting.popleft()

    def fail(self, taken: Sequence[Request]) -> None:
        """The outcome of undecided requests is unknown."""
        undecided = [request for request in taken if request.receipts is None]
        _fail(undecided, OutcomeUnknown(self.topic, "the publisher that wrote was interrupted"))

    def forget(self, requests: Sequence[Request]) -> None:
        """Free their space; the caller holds the lock."""
        for request in requests:
            if request.is_counted:
                request.is_counted = False
                self._messages -= request.rows
                self._bytes -= request.bytes
        self._admit_waiting()


def _tell(request: Request) -> None:
    if request.wake is not None:
        request.wake()


def _fail(requests: Sequence[Request], error: Exception) -> None:
    """Give each request its own copy of the error, except those that were refused separately."""
    for request in requests:
        if request.error is None:
            request.error = again(error) if isinstance(error, HeadraceError) else error

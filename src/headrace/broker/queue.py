"""Group commit: publishers that wait at the same time share one commit and one sync.

There is no writing thread. The first publisher to come leads: it takes everything that waits, its own request first
among it, and commits it. Whoever comes meanwhile waits in the queue; when the leader is done it hands the lead to the
first of them and returns. So one publisher alone pays for no thread switch, and a crowd pays for one sync.

Those whose requests are decided wake each other, one after another, and the last of them wakes who leads next. Woken at
once they would all fight for the interpreter, which only one can have, and the leader with them; so each finds it free,
and the next commit has what the quick ones publish next. Who was interrupted is left out, or wakes the next in going.

The queue is bounded. A publisher that finds it full waits in line for room, so that small requests do not keep a
large one out; if there is none in time it gets an error and nothing of its request was accepted. Once a request is in
the queue its outcome is awaited, however long it takes. A publisher that is interrupted while it waits takes its
request back, and passes the lead on if it was handed to it.

Lock order: the queue's lock is never held while committing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from headrace.core.errors import HeadraceError, OutcomeUnknown, Overloaded, again
from headrace.core.limits import FRAME_BYTES, FRAME_ROWS
from headrace.core.measures import SECONDS, Histogram
from headrace.core.planning import CommitKey, Receipts

_SMALL_BYTES: Final = 4096


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(frozen=True, slots=True)
class Fence:
    """Who publishes: the producer that was opened with an epoch for a source. A newer one fences it off."""

    source: tuple[str, str]
    epoch: int


@dataclass(slots=True, eq=False)
class Request:
    """What one publisher wants written, and what came of it; staged rows were checked when they were staged."""

    batches: Sequence[pa.RecordBatch]
    key: CommitKey | None = None
    is_checked: bool = False
    fence: Fence | None = None
    rows: int = 0
    bytes: int = 0
    receipts: Receipts | None = None
    error: Exception | None = None
    leads: bool = False
    is_abandoned: bool = False
    # Whom the publisher wakes once it was woken itself.
    next: Request | None = None
    decided: threading.Lock = field(default_factory=_locked)

    def __post_init__(self) -> None:
        for batch in self.batches:
            self.rows += batch.num_rows
            self.bytes += _size_of(batch)

    @property
    def outcome(self) -> Receipts | Exception:
        """The receipts, or what prevented them."""
        if self.error is not None:
            return self.error
        assert self.receipts is not None, "the request was decided"
        return self.receipts


def _size_of(batch: pa.RecordBatch) -> int:
    """The bytes of a batch; of a small one those of its buffers, which may be more, and cost far less to ask for."""
    size: int = batch.get_total_buffer_size()
    return size if size <= _SMALL_BYTES else batch.nbytes


def _wake(request: Request | None) -> None:
    """Let a publisher go on; twice does no harm."""
    if request is not None:
        with suppress(RuntimeError):
            request.decided.release()


class CommitQueue:
    """The publishers of one topic that wait. Safe for threads."""

    def __init__(
        self, topic: str, commit: Callable[[Sequence[Request]], None], messages_max: int, bytes_max: int
    ) -> None:
        self.topic = topic
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.seconds = Histogram(SECONDS)
        self._commit = commit
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self._line: deque[Request] = deque()
        self._waiting: deque[Request] = deque()
        self._messages = 0
        self._bytes = 0
        self._has_leader = False
        self._closed: HeadraceError | None = None

    @property
    def depth(self) -> int:
        """The messages that wait, those being written included."""
        return self._messages

    def publish(self, request: Request, timeout_seconds: float) -> Receipts:
        """Wait until the request is written, or raise what prevented it."""
        self.publish_many([request], timeout_seconds)
        outcome = request.outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def publish_many(self, requests: Sequence[Request], timeout_seconds: float) -> None:
        """Wait until every request is written or refused, which each says itself; together they may share a commit.

        Requests enter as far as there is room, the first of them waiting for it like any other.
        """
        began = time.perf_counter()
        left = deque(requests)
        while left:
            entered, leads = self._enter(left, timeout_seconds)
            try:
                if leads:
                    self._lead()
                for request in entered:
                    request.decided.acquire()
                    if request.leads:
                        self._lead()
                        request.decided.acquire()
                    _wake(request.next)
            except BaseException:
                self._abandon(entered)
                raise
        self.seconds.observe(time.perf_counter() - began, len(requests))

    def close(self, reason: HeadraceError) -> None:
        """Let in nobody more, and wait for those who are in."""
        with self._lock:
            self._closed = reason
            self._room.notify_all()
            while self._has_leader:
                self._idle.wait()

    def _enter(self, left: deque[Request], timeout_seconds: float) -> tuple[list[Request], bool]:
        """Put the first request into the queue, and those after it that fit; whether their publisher has to lead."""
        with self._lock:
            if self._line or self._is_full(left[0]):
                self._wait_for_room(left[0], timeout_seconds)
            if self._closed is not None:
                raise again(self._closed)
            entered = [self._append(left.popleft())]
            while left and not self._line and not self._is_full(left[0]):
                entered.append(self._append(left.popleft()))
            leads = not self._has_leader
            self._has_leader = True
            return entered, leads

    def _append(self, request: Request) -> Request:
        self._messages += request.rows
        self._bytes += request.bytes
        self._waiting.append(request)
        return request

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
            self._room.notify_all()

    def _abandon(self, requests: Sequence[Request]) -> None:
        """Take back those that are not being written; whoever has the lead must not just go."""
        with self._lock:
            waiting = [request for request in requests if request in self._waiting]
            for request in waiting:
                self._waiting.remove(request)
            self._forget(waiting)
            if any(request.leads for request in waiting):
                _wake(self._successor())
            for request in requests:
                request.is_abandoned = True
                _wake(request.next)

    def _is_full(self, request: Request) -> bool:
        """A request that is larger than the queue may enter when nobody else is in it."""
        too_many = self._messages + request.rows > self.messages_max or self._bytes + request.bytes > self.bytes_max
        return too_many and self._messages > 0

    def _lead(self) -> None:
        with self._lock:
            taken = self._take()
        try:
            self._commit(taken)
        except Exception as error:
            _fail(taken, error)
        except BaseException as interrupt:
            _fail(taken, OutcomeUnknown(self.topic, f"the publisher that wrote was interrupted: {interrupt!r}"))
            raise
        finally:
            self._hand_over(taken)

    def _take(self) -> list[Request]:
        """The first requests, as many as fit one frame, at least one."""
        rows = size = 0
        taken: list[Request] = []
        while self._waiting:
            first = self._waiting[0]
            rows, size = rows + first.rows, size + first.bytes
            if taken and (rows > FRAME_ROWS or size > FRAME_BYTES):
                break
            taken.append(self._waiting.popleft())
        return taken

    def _hand_over(self, taken: Sequence[Request]) -> None:
        """Wake the first whose request is decided, which wakes the next, and so on to the next leader."""
        with self._lock:
            self._forget(taken)
            following = self._successor()
            for request in reversed(taken):
                if not request.is_abandoned:
                    request.next, following = following, request
        _wake(following)

    def _successor(self) -> Request | None:
        """Who leads next; none if nobody waits."""
        if self._waiting:
            self._waiting[0].leads = True
            return self._waiting[0]
        self._has_leader = False
        self._idle.notify_all()
        return None

    def _forget(self, requests: Sequence[Request]) -> None:
        self._messages -= sum(request.rows for request in requests)
        self._bytes -= sum(request.bytes for request in requests)
        self._room.notify_all()


def _fail(requests: Sequence[Request], error: Exception) -> None:
    """Give each request its own copy of the error, but not one that was refused by itself."""
    for request in requests:
        if request.error is None:
            request.error = again(error) if isinstance(error, HeadraceError) else error

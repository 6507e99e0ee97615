"""Uploads: batches are published while the next ones are read.

The thread of the call reads the stream into a short queue; a second thread publishes all queued batches in one commit,
so that small batches share a sync, and answers each batch in the order sent. The thread of the call returns last: the
stream's memory is freed with it.

An invalid batch gets its error as its answer, and the stream continues. Any other error is answered too and ends the
publishing: nothing after it is written, so that a producer with seqnos can start again at that batch and loses none.
The rest of such a stream is read and dropped.

A caller that has too many bytes under way, or publishes too fast, is not refused: its stream is read on later, and the
connection holds the sender back (`Pace`).

Batches were validated by the edge (`edge.arrow`). One that is not valid Arrow ends the stream there: what came before
it is published and answered, and its error is the last answer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from headrace import tracing
from headrace.broker import Broker
from headrace.core.errors import AccessDenied, Closed, HeadraceError, InvalidInput
from headrace.core.limits import FRAME_ROWS
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
from headrace.edge.access import Principal
from headrace.wire.answers import encode_receipts, encode_refusal
from headrace.wire.tickets import Publish, Stage

Answer = Callable[[pa.Buffer], None]
# Raises once the caller loses the right.
CheckAccess = Callable[[], None]

_AHEAD_BATCHES: Final = 64
_AHEAD_BYTES: Final = 8 << 20
# Small batches share a sync; larger ones gain nothing from it, and lose what the processor's cache gives.
_TOGETHER_BYTES: Final = 2 << 20
_PATIENCE_SECONDS: Final = 0.5


class Pace:
    """How fast the stream of one caller may be read, by the caller's limits."""

    def __init__(self, principal: Principal, is_over: Callable[[], bool]) -> None:
        self._name = principal.name
        self._limits = principal.limits
        self._is_over = is_over

    def take(self, size: int, is_over: Callable[[], bool | None]) -> bool:
        """Wait until this many bytes may be read; returns False if the stream ended before."""

        def is_enough() -> bool:
            return self._is_over() or bool(is_over())

        self._limits.publish_bytes.wait(self._name, is_enough)
        if not self._limits.bodies.wait(self._name, size, is_enough):
            return False
        self._limits.publish_bytes.spend(self._name, size)
        return True

    def give_back(self, size: int) -> None:
        """This many bytes were processed."""
        if size:
            self._limits.bodies.give_back(self._name, size)


def stage(
    broker: Broker,
    command: Stage,
    name: str,
    batches: Iterator[pa.RecordBatch],
    answer: Answer,
    check_access: CheckAccess,
    pace: Pace,
) -> None:
    """Add a stream to the stage of this name, and answer with its number of rows."""
    rows = 0
    for batch in batches:
        size = batch.nbytes
        if not pace.take(size, check_access):
            raise Closed("the server")
        try:
            check_access()
            rows = broker.stage(command.topic, batch, name).rows
        finally:
            pace.give_back(size)
    answer(pa.py_buffer(str(rows).encode()))


def publish(
    broker: Broker,
    command: Publish,
    batches: Iterator[pa.RecordBatch],
    answer: Answer,
    is_over: Callable[[], bool],
    check_access: CheckAccess,
    pace: Pace,
) -> None:
    """Publish a whole stream, as long as its caller may."""
    ahead = _Ahead(pace)
    publishing = _Publishing(broker, command, ahead, answer, is_over, check_access)
    thread = threading.Thread(target=publishing.run, name="headrace-flight-upload", daemon=True)
    thread.start()
    try:
        for batch in batches:
            ahead.put(batch)
            if isinstance(publishing.failure, AccessDenied):
                # Nothing more is read from a caller without the right.
                break
    except (InvalidInput, Closed) as error:
        ahead.end()
        thread.join()
        publishing.tell(error)
        raise
    finally:
        ahead.end()
        thread.join()
    if publishing.failure is not None:
        raise publishing.failure


class _Publishing:
    """The publishing of one stream."""

    def __init__(
        self,
        broker: Broker,
        command: Publish,
        ahead: _Ahead,
        answer: Answer,
        is_over: Callable[[], bool],
        check_access: CheckAccess,
    ) -> None:
        self._broker = broker
        self._command = command
        self._ahead = ahead
        self._answer = answer
        self._is_over = is_over
        self._check_access = check_access
        self._number = command.first_number
        self.failure: Exception | None = None

    def run(self) -> None:
        """Publish until the stream ends or an error occurs; the top of a thread."""
        try:
            while (batches := self._ahead.take(self._has_ended)) is not None:
                try:
                    self._check_access()
                    self._publish(batches)
                finally:
                    self._ahead.done(batches)
        except Exception as error:
            self.failure = error
            self.tell(error)
        finally:
            self._ahead.refuse()

    def _has_ended(self) -> bool:
        self._check_access()
        return self._is_over()

    def tell(self, error: Exception) -> None:
        """Send an error as the last answer."""
        if isinstance(error, HeadraceError):
            try:
                self._answer(encode_refusal(error))
            except (pa.ArrowException, OSError):
                # The client has disconnected.
                return

    def _publish(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Publish all together; if that fails, one by one, to find the invalid ones."""
        if self._command.writer is None and len(batches) > 1:
            try:
                receipts = self._write(pa.concat_batches(batches))
            except (InvalidInput, pa.ArrowException):
                pass
            else:
                self._answer_each(batches, receipts)
                return
        for batch in batches:
            try:
                self._answer(encode_receipts(self._write(batch).to_arrow()))
            except InvalidInput as error:
                self._answer(encode_refusal(error))

    def _answer_each(self, batches: Sequence[pa.RecordBatch], receipts: Receipts) -> None:
        start = 0
        for batch in batches:
            self._answer(encode_receipts(receipts.slice(start, start + batch.num_rows).to_arrow()))
            start += batch.num_rows

    def _write(self, batch: pa.RecordBatch) -> Receipts:
        if tracing.active is None:
            return self._commit(batch)
        with tracing.active.publishing(self._command.topic, batch):
            return self._commit(batch)

    def _commit(self, batch: pa.RecordBatch) -> Receipts:
        command = self._command
        if command.epoch is not None:
            return self._broker.publish_as(
                command.topic, batch, command.producer_id, command.message_group_id, command.epoch
            )
        key = None if command.writer is None else CommitKey(command.writer, self._number)
        self._number += 1
        return self._broker.publish(command.topic, batch, key)


class _Ahead:
    """Batches that were read and not yet published, limited in number and bytes."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._changed = threading.Condition()
        self._batches: deque[pa.RecordBatch] = deque()
        self._bytes = 0
        self._ended = False
        self._refused = False

    def put(self, batch: pa.RecordBatch) -> None:
        """Add a batch, waiting for space; after the publishing has ended, it is dropped."""
        size = batch.nbytes
        with self._changed:
            while self._is_full() and not self._refused:
                self._changed.wait()
        # Only here are batches put, so there is still room.
        if not self._pace.take(size, lambda: self._refused):
            if self._refused:
                return
            # Nothing after a dropped batch may be written: its retry would count as a duplicate.
            self.refuse()
            raise Closed("the server")
        with self._changed:
            if self._refused:
                self._pace.give_back(size)
                return
            self._batches.append(batch)
            self._bytes += size
            self._changed.notify_all()

    def take(self, is_over: Callable[[], bool]) -> list[pa.RecordBatch] | None:
        """The first batches to publish together, at least one; empty at the end of the stream."""
        with self._changed:
            while not self._batches:
                if self._ended:
                    return None
                if is_over():
                    raise Closed("the server")
                self._changed.wait(_PATIENCE_SECONDS)
            taken: list[pa.RecordBatch] = []
            rows = size = 0
            while self._batches:
                rows, size = rows + self._batches[0].num_rows, size + self._batches[0].nbytes
                if taken and (rows > FRAME_ROWS or size > _TOGETHER_BYTES):
                    break
                taken.append(self._batches.popleft())
                self._bytes -= taken[-1].nbytes
            self._changed.notify_all()
            return taken

    def done(self, batches: Sequence[pa.RecordBatch]) -> None:
        """What was taken is dealt with."""
        self._pace.give_back(sum(batch.nbytes for batch in batches))

    def end(self) -> None:
        """No more batches will be added."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def refuse(self) -> None:
        """No more batches will be taken."""
        with self._changed:
            self._refused = True
            self._pace.give_back(sum(batch.nbytes for batch in self._batches))
            self._batches.clear()
            self._changed.notify_all()

    def _is_full(self) -> bool:
        return len(self._batches) >= _AHEAD_BATCHES or self._bytes >= _AHEAD_BYTES

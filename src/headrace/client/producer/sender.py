"""The sender: sends batches over one stream at a time, several in flight.

One thread takes batches from the buffer, gives them seqnos and writes them; a second one, for each stream, reads
the answers (`stream`). A caller may write a message itself while the first thread has nothing to do (`buffer`), and
read its answer while it waits for that. When a stream breaks, the first thread opens another and sends again, in order
and with the same seqnos, everything that was not answered: the broker drops what was already written as duplicates.
Batches that must not be sent twice fail with `OutcomeUnknown` instead. An error that a retry cannot fix ends the
producer.

The queue of unanswered batches is guarded by `_answered`: the writing thread appends to it, the reading one pops, and
the thread that closes a producer which gets no answers empties it. So is the batch in hand, which is not yet in the
queue. The one that takes a batch away decides what becomes of it.

Deliveries that run are known, so that at the end of the process what waits is sent; what could not be is logged.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  Arrow imports it at its first conversion, which cannot be at exit.
import logging
import os
import threading
import time
import warnings
from collections import deque
from typing import Final

import pyarrow as pa

from headrace.client.producer.batch import PendingBatch, as_batch, fitted, numbered
from headrace.client.producer.buffer import SendBuffer
from headrace.client.producer.futures import Outcome
from headrace.client.producer.stream import Answer, ProducerStream
from headrace.client.retry import Backoff, Calls
from headrace.client.settings import ProducerSettings
from headrace.client.transport.transport import Transport
from headrace.core.errors import Closed, HeadraceError, InvalidInput, OutcomeUnknown, ServerFailed, Unreachable, again
from headrace.core.limits import PRODUCER_BATCHES_IN_FLIGHT
from headrace.core.reports.descriptions import ProducerOpening
from headrace.core.retry import is_transient
from headrace.wire.native import WrittenAt
from headrace.wire.operations import OpenProducer
from headrace.wire.tickets import Publish

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.5
# Failures that were not reported yet; of more than that the first ones are enough.
_FAILURES_MAX: Final = 64


class BatchSender:
    """The sending side of one producer."""

    def __init__(
        self, transport: Transport, topic: str, settings: ProducerSettings, buffer: SendBuffer, calls: Calls
    ) -> None:
        self._calls = calls
        self._transport = transport
        self._topic = topic
        self._settings = settings
        self._buffer = buffer
        self._epoch: int | None = None
        self._unanswered: deque[PendingBatch] = deque()
        self._in_hand: PendingBatch | None = None
        self._answered = threading.Condition()
        self._stream: ProducerStream | None = None
        self._schema: pa.Schema | None = None
        self._stop = threading.Event()
        self._failed: list[Outcome] = []
        self.is_open = False
        self.opening = self.open()
        self.last_seqno = self.opening.last_seqno
        self._next_seqno = 1 if self.opening.last_seqno is None else self.opening.last_seqno + 1
        self._thread = threading.Thread(target=self._run, name="headrace-producer", daemon=True)
        self.is_open = True
        _running.add(self)
        self._thread.start()

    def open(self) -> ProducerOpening:
        """Take the source over, or continue as its producer."""
        ids = self._settings.producer_id or "", self._settings.message_group_id
        opening: ProducerOpening = self._calls(OpenProducer(self._topic, *ids, self._epoch))
        self._epoch = opening.epoch if self._settings.producer_id else None
        return opening

    def take_failure(self) -> HeadraceError | None:
        """The first failure since this was asked last that no future has reported."""
        failed, self._failed = self._failed, []
        return next((outcome.error for outcome in failed if not outcome.is_reported), None)

    def end(self) -> None:
        """Send what is in the buffer, and end then; does not wait."""
        self.is_open = False
        self._buffer.end()

    def close(self, timeout_seconds: float) -> None:
        """Send what is in the buffer and end; what is not answered in time fails.

        A signal handler or a callback in the middle of a call that writes or reads does not wait: that call goes on.
        """
        self.end()
        stream = self._stream
        if self._buffer.is_written_here() or (stream is not None and stream.is_read_here()):
            return
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            self._stop.set()
            self._buffer.wake()
            self._give_up(Closed("the producer"), for_ever=True)

    def _run(self) -> None:
        """The top of the writing thread."""
        try:
            while not self._stop.is_set():
                pending = self._buffer.take()
                if pending is not None:
                    self._hold(pending)
                    self._prepare(pending)
                    self._send(pending)
                elif self._stream is not None and self._stream.is_over:
                    self._repair()
                elif self._buffer.is_ended:
                    break
            self._drain()
        except HeadraceError as error:
            self._give_up(error, for_ever=True)
        except Exception as error:
            logger.exception("the producer of topic %r failed", self._topic)
            self._give_up(ServerFailed(f"the producer failed: {error!r}"), for_ever=True)
        finally:
            _running.discard(self)

    def end_with_the_process(self, timeout_seconds: float) -> None:
        """Wait until what waited is sent, and log what was not."""
        self.close(timeout_seconds)
        failure = self.take_failure()
        if failure is not None:
            logger.error("messages to topic %r were not delivered at exit: %s", self._topic, failure)

    @property
    def patience_seconds(self) -> float:
        """How long the end may take."""
        return self._settings.timeout_seconds + 1.0

    @property
    def topic(self) -> str:
        """The topic that is written to."""
        return self._topic

    def _hold(self, pending: PendingBatch) -> None:
        with self._answered:
            self._in_hand = pending
            if not self._stop.is_set():
                return
        # The thread that closed the producer may not have seen it.
        self._give_up(Closed("the producer"), for_ever=True)

    def _prepare(self, pending: PendingBatch) -> None:
        """Make the batch that is sent, and sent again, with the seqnos that it keeps."""
        self._number(pending)
        settings = self._settings
        if pending.batch is None:
            columns = pending.columns(settings.codec)
            pending.values, pending.keys = [], []
        else:
            columns = dict(zip(pending.batch.schema.names, pending.batch.columns, strict=True))
        if settings.producer_id is not None:
            assert pending.first_seqno is not None, "it was numbered"
            columns = numbered(columns, settings.producer_id, settings.message_group_id, pending.first_seqno)
        pending.batch = as_batch(columns)

    def _number(self, pending: PendingBatch) -> None:
        if self._settings.producer_id is not None and pending.first_seqno is None:
            pending.first_seqno = self._next_seqno
            self._next_seqno += pending.rows
            pending.is_repeatable = self.opening.drops_duplicates

    def _write_now(self, pending: PendingBatch) -> None:
        """Write a message in the thread of its caller, while the sender thread waits; or leave it to that."""
        stream = self._stream
        if stream is None or not stream.may_write_now():
            return
        self._number(pending)
        try:
            with self._answered:
                # Otherwise the thread that closed the producer may not have seen it.
                is_open = not self._stop.is_set()
                pending.is_in_flight = True
                if is_open:
                    self._unanswered.append(pending)
            if is_open:
                stream.write_now(pending, pending.record())
            else:
                self._fail(pending, Closed("the producer"))
        except BaseException as error:
            with self._answered:
                is_entered = pending in self._unanswered
            pending.is_in_flight = is_entered or pending.outcome.is_decided
            if is_entered:
                stream.give_up(error)
            if not isinstance(error, HeadraceError):
                raise

    def _send(self, pending: PendingBatch) -> None:
        assert pending.batch is not None, "the pending is prepared"
        while not self._has_room():
            self._repair()
        if self._schema is None or fitted(pending.batch, self._schema) is None:
            self._drain()
            self._schema = _merged(self._schema, pending.batch.schema)
        stream = self._stream
        if stream is not None and stream.is_direct and not self._unanswered and not stream.may_write_now():
            # It ended, and no thread has noticed: it was asked nothing.
            self._repair()
        if not self._await_answer():
            return
        if self._stream is None:
            self._repair()
            return
        try:
            self._stream.write(pending)
        except HeadraceError:
            self._repair()

    def _await_answer(self) -> bool:
        """Put the batch in hand where its answer finds it, unless the producer was closed meanwhile."""
        with self._answered:
            if self._stop.is_set() or self._in_hand is None:
                # The thread that closes gives it up.
                return False
            self._unanswered.append(self._in_hand)
            self._in_hand.is_in_flight = True
            self._in_hand = None
            return True

    def _has_room(self) -> bool:
        """Wait until fewer batches are in flight; false if the stream ended meanwhile."""
        with self._answered:
            while len(self._unanswered) >= PRODUCER_BATCHES_IN_FLIGHT and self._stream is not None:
                if self._stop.is_set():
                    return True
                if self._stream.is_over:
                    return False
                self._answered.wait(_LOOK_SECONDS)
        return True

    def _drain(self) -> None:
        """End the stream, once everything on it is answered."""
        while self._stream is not None:
            self._buffer.write_now = None
            stream, self._stream = self._stream, None
            stream.finish()
            stream.join()
            if self._unanswered:
                self._stream = stream
                self._repair()

    def _repair(self) -> None:
        """Open a stream and write what is not answered, until it works or takes too long; raises what cannot be."""
        error = self._end_stream()
        backoff = Backoff(self._settings.timeout_seconds, self._stop)
        while True:
            if error is not None:
                if not is_transient(error):
                    raise error
                self._fail_unrepeatable(error)
            if not self._unanswered:
                return
            try:
                self._begin()
                return
            except HeadraceError as failure:
                error = self._end_stream() or failure
            if not is_transient(error):
                raise error
            if not backoff.wait(error):
                self._give_up(error, for_ever=False)
                return

    def _begin(self) -> None:
        if self._epoch is not None:
            self.opening = self.open()
        ids = self._settings.producer_id or "", self._settings.message_group_id
        command = Publish(self._topic, producer_id=ids[0], message_group_id=ids[1], epoch=self._epoch)
        again_sent = list(self._unanswered)
        for pending in again_sent:
            if pending.batch is None:
                # Its caller has sent it.
                self._prepare(pending)
            assert pending.batch is not None, "the pending is prepared"
            if self._schema is None or fitted(pending.batch, self._schema) is None:
                self._schema = _merged(self._schema, pending.batch.schema)
        assert self._schema is not None, "there is something to send"
        upload = self._transport.upload(command, self._schema)
        self._stream = ProducerStream(
            upload, self._schema, self._take_answer, lambda: bool(self._unanswered), self._stream_is_over
        )
        for pending in again_sent:
            self._stream.write(pending)
        if self._stream.is_direct and self._settings.codec == "raw":
            self._buffer.write_now = self._write_now

    def _stream_is_over(self) -> None:
        """In the thread that read the end."""
        with self._answered:
            self._answered.notify_all()
        self._buffer.wake()

    def _end_stream(self) -> HeadraceError | None:
        """Let go of the stream; why it ended, if that is known."""
        self._buffer.write_now = None
        stream, self._stream = self._stream, None
        if stream is None:
            return None
        stream.finish()
        stream.join()
        return stream.failure or (Closed("the stream") if self._unanswered else None)

    def _take_answer(self, answer: Answer) -> HeadraceError | None:
        """In the thread that reads: the answer to the first batch; an error that ends the stream is given back."""
        if isinstance(answer, HeadraceError) and not isinstance(answer, InvalidInput):
            return answer
        with self._answered:
            first = self._unanswered[0] if self._unanswered else None
        try:
            pending = self._first_unanswered()
            if pending is None:
                # It was given up, and its sender has the error.
                return None
            if isinstance(answer, HeadraceError):
                self._fail(pending, answer)
            else:
                self._buffer.release(pending)
                self._count(pending, answer)
                pending.outcome.decide(answer, None)
        except BaseException:
            # Interrupted: the sender thread decides it.
            with self._answered:
                if first is not None and not first.outcome.is_decided and first not in self._unanswered:
                    self._unanswered.appendleft(first)
            raise
        with self._answered:
            self._answered.notify_all()
        return None

    def _count(self, pending: PendingBatch, receipts: pa.RecordBatch | WrittenAt) -> None:
        if self._settings.producer_id is not None:
            written = pending.last_written(receipts)
            if written is not None:
                self.last_seqno = max(written, self.last_seqno or 0)

    def _fail_unrepeatable(self, error: HeadraceError) -> None:
        """Where they may have been written, those that must not be sent twice are given up."""
        if error.nothing_done and not isinstance(error, Unreachable):
            return
        with self._answered:
            lost = [pending for pending in self._unanswered if not pending.is_repeatable and pending.was_sent]
            kept = [pending for pending in self._unanswered if pending.is_repeatable or not pending.was_sent]
            self._unanswered = deque(kept)
        for pending in lost:
            self._fail(pending, OutcomeUnknown(self._topic, str(error)))

    def _give_up(self, error: HeadraceError, for_ever: bool) -> None:
        # Refused first: a caller that sees the end of one message sends no other.
        refused = self._buffer.refuse(error if for_ever else None)
        # All at once: an answer that arrives meanwhile is that of the first, which is not the first one left.
        with self._answered:
            unanswered = list(self._unanswered)
            self._unanswered.clear()
        for pending in unanswered:
            is_unknown = pending.was_sent and (is_transient(error) or not error.nothing_done)
            self._fail(pending, OutcomeUnknown(self._topic, str(error)) if is_unknown else error)
        if for_ever and (held := self._let_go()) is not None:
            self._fail(held, error)
        for pending in refused:
            self._fail(pending, error)

    def _let_go(self) -> PendingBatch | None:
        with self._answered:
            pending, self._in_hand = self._in_hand, None
        return pending

    def _first_unanswered(self) -> PendingBatch | None:
        with self._answered:
            return self._unanswered.popleft() if self._unanswered else None

    def _fail(self, pending: PendingBatch, error: HeadraceError) -> None:
        self._buffer.release(pending)
        if len(self._failed) >= _FAILURES_MAX:
            self._failed = [outcome for outcome in self._failed if not outcome.is_reported]
        if len(self._failed) < _FAILURES_MAX:
            self._failed.append(pending.outcome)
        pending.outcome.decide(None, again(error))


def _merged(schema: pa.Schema | None, more: pa.Schema) -> pa.Schema:
    """A schema for batches of both kinds; where they contradict each other, that of the newer."""
    if schema is None:
        return more
    missing = [field for field in schema if more.get_field_index(field.name) < 0]
    return pa.schema([*more, *missing])


_running: set[BatchSender] = set()


def _end_all() -> None:
    """At the end of the process: send what producers that nobody closed have, all at the same time."""
    left = list(_running)
    for sender in left:
        if sender.is_open:
            line = f"a producer of topic {sender.topic!r} was never closed: use `with`, or call close()"
            warnings.warn(line, ResourceWarning, stacklevel=1)
        sender.end()
    began = time.monotonic()
    for sender in left:
        sender.end_with_the_process(max(0.0, began + sender.patience_seconds - time.monotonic()))


atexit.register(_end_all)
# Threads of another process send nothing here, and may hold locks for ever.
os.register_at_fork(after_in_child=_running.clear)

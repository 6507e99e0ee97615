"""Uploads: batches are published while the next ones are read.

    thread of the call    reads a batch, checks the right, puts it into the intake of its topic
    a second thread       from the first batch on: waits for the outcomes in order, leading if nobody does, answers each
    one thread for all    looks after uploads without a batch: those that are to end get their second thread

So small batches share a sync with all that wait for the same topic, and a client that does not read its answers delays
nobody but itself. The thread of the call returns last: the stream's memory is freed with it.

A stream is a lane. An invalid batch gets its error as its answer, and the stream continues. Any other error is answered
too and ends the publishing: nothing after it is written, so that a producer with seqnos can start again at that batch
and loses none. The rest of such a stream is dropped.

A caller that has too many bytes under way, or publishes too fast, is not refused: its stream is read on later, and the
connection holds the sender back (`Pace`).

Batches were validated by the edge (`edge.arrow`). One that is not valid Arrow ends the stream there: what came before
it is published and answered, and its error is the last answer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from headrace import tracing
from headrace.broker import Broker
from headrace.broker.checks import check_batch, check_commit_key, check_epoch
from headrace.broker.publish.intake import TopicIntake
from headrace.broker.publish.submission import Fence, Lane, Submission
from headrace.core.errors import AccessDenied, Closed, HeadraceError, InvalidInput
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
_PATIENCE_SECONDS: Final = 0.5


class Pace:
    """How fast the stream of one caller may be read, by the caller's limits."""

    def __init__(self, principal: Principal, is_over: Callable[[], bool]) -> None:
        self._name = principal.name
        self._limits = principal.limits
        self._is_over = is_over

    @property
    def name(self) -> str:
        """Of the caller."""
        return self._name

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
    waiting: WaitingUploads,
) -> None:
    """Publish a whole stream, as long as its caller may."""
    upload = _Upload(broker, command, answer, is_over, check_access, pace)
    waiting.add(upload)
    try:
        for batch in batches:
            if upload.begin():
                waiting.remove(upload)
            if not upload.put(batch):
                # Nothing more is read from a caller without the right.
                break
    except (InvalidInput, Closed) as error:
        upload.end()
        upload.tell(error)
        raise
    finally:
        waiting.remove(upload)
        upload.end()
    if upload.failure is not None:
        raise upload.failure


class WaitingUploads:
    """Uploads that have sent no batch yet; one thread looks after all of them, as long as there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[_Upload, None] = {}
        self._has_thread = False

    def add(self, upload: _Upload) -> None:
        """Look after an upload, until it is removed."""
        with self._lock:
            self._waiting[upload] = None
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._run, name="headrace-flight-waiting", daemon=True).start()

    def remove(self, upload: _Upload) -> None:
        """It has sent something, or ended."""
        with self._lock:
            self._waiting.pop(upload, None)

    def _run(self) -> None:
        while True:
            time.sleep(_PATIENCE_SECONDS)
            with self._lock:
                waiting = list(self._waiting)
                self._has_thread = bool(waiting)
            if not waiting:
                return
            for upload in waiting:
                if not upload.may_continue():
                    upload.begin()


class _Entered(NamedTuple):
    """A batch that was put into an intake, and its bytes."""

    intake: TopicIntake
    submission: Submission
    size: int


class _Upload:
    """The publishing of one stream."""

    def __init__(
        self,
        broker: Broker,
        command: Publish,
        answer: Answer,
        is_over: Callable[[], bool],
        check_access: CheckAccess,
        pace: Pace,
    ) -> None:
        self._broker = broker
        self._command = command
        self._answer = answer
        self._is_over = is_over
        self._check_access = check_access
        self._pace = pace
        self._number = command.first_number
        self._lane = Lane()
        # What is to be answered, in order, and its bytes; None is the end of the stream.
        self._changed = threading.Condition()
        self._entered: deque[_Entered | Exception | None] = deque()
        self._bytes = 0
        # Whether nothing more is put in, because of what is or will be the last answer; why the publishing has ended.
        self._is_refused = False
        self.failure: Exception | None = None
        # Answers; none before there is something to answer.
        self._thread: threading.Thread | None = None
        self._has_ended = False

    def may_continue(self) -> bool:
        """Whether neither its caller's right nor the server has ended."""
        try:
            self._check_access()
        except Exception:
            # The thread that answers finds it too, and says it.
            return False
        return not self._is_over()

    def begin(self) -> bool:
        """Answer from now on; whether that begins with this call."""
        if self._thread is not None:
            return False
        with self._changed:
            if self._thread is not None or self._has_ended:
                return False
            self._thread = threading.Thread(target=self._answer_all, name="headrace-flight-upload", daemon=True)
            self._thread.start()
        return True

    # The thread of the call

    def put(self, batch: pa.RecordBatch) -> bool:
        """Put in a batch, waiting for space, or drop it if the publishing has ended; returns whether to read on."""
        size = batch.nbytes
        with self._changed:
            while self._is_full() and not self._is_refused:
                self._changed.wait()
        is_taken = not self._is_refused and self._pace.take(size, lambda: self._is_refused)
        if not is_taken and not self._is_refused:
            # Nothing after a dropped batch may be written: its retry would count as a duplicate.
            self._add(Closed("the server"))
            return False
        if not is_taken:
            # Nothing more is read from a caller without the right.
            return not isinstance(self.failure, AccessDenied)
        try:
            self._check_access()
            submission = self._submission(batch)
            intake = self._broker.intake(self._command.topic)
            intake.put(submission, self._broker.settings.publish_timeout_seconds)
        except Exception as error:
            self._pace.give_back(size)
            self._add(error)
            return not isinstance(error, AccessDenied)
        self._add(_Entered(intake, submission, size))
        return True

    def end(self) -> None:
        """No more batches will be put in; returns once all of them are answered."""
        with self._changed:
            self._has_ended = True
        self._add(None)
        if self._thread is not None:
            self._thread.join()

    def _add(self, entered: _Entered | Exception | None) -> None:
        with self._changed:
            is_dropped = self._is_refused
            if isinstance(entered, Exception) and not isinstance(entered, InvalidInput):
                self._is_refused = True
            if not is_dropped or entered is None:
                self._entered.append(entered)
                self._bytes += entered.size if isinstance(entered, _Entered) else 0
                self._changed.notify_all()
        if is_dropped and isinstance(entered, _Entered):
            self._drop(entered)

    def _submission(self, batch: pa.RecordBatch) -> Submission:
        command, key, fence = self._command, None, None
        if command.epoch is not None:
            fence = Fence((command.producer_id, command.message_group_id), check_epoch(command.epoch))
        elif command.writer is not None:
            key = check_commit_key(CommitKey(command.writer, self._number))
        self._number += 1
        return Submission([check_batch(batch)], key, fence=fence, lane=self._lane, account=self._pace.name)

    def _is_full(self) -> bool:
        return len(self._entered) >= _AHEAD_BATCHES or self._bytes >= _AHEAD_BYTES

    # The thread that answers

    def _answer_all(self) -> None:
        """Answer until the stream ends or an error occurs; the top of a thread."""
        try:
            while (entered := self._next()) is not None:
                outcome = entered if isinstance(entered, Exception) else self._outcome(entered)
                if isinstance(outcome, Receipts):
                    self._answer(encode_receipts(outcome))
                elif isinstance(outcome, InvalidInput):
                    self._answer(encode_refusal(outcome))
                else:
                    raise outcome
        except Exception as error:
            self.failure = error
            self.tell(error)
        finally:
            self._refuse()

    def tell(self, error: Exception) -> None:
        """Send an error as the last answer."""
        if isinstance(error, HeadraceError):
            try:
                self._answer(encode_refusal(error))
            except (pa.ArrowException, OSError):
                # The client has disconnected.
                return

    def _next(self) -> _Entered | Exception | None:
        """What is to be answered next; None at the end of the stream."""
        with self._changed:
            while not self._entered:
                self._check_access()
                if self._is_over():
                    raise Closed("the server")
                self._changed.wait(_PATIENCE_SECONDS)
            return self._entered.popleft()

    def _outcome(self, entered: _Entered) -> Receipts | Exception:
        intake, submission, size = entered
        try:
            if tracing.active is None:
                return intake.result(submission)
            with tracing.active.publishing(self._command.topic, submission.batches[0]):
                return intake.result(submission)
        finally:
            self._pace.give_back(size)
            with self._changed:
                self._bytes -= size
                self._changed.notify_all()

    def _refuse(self) -> None:
        """Nothing more is answered, nor written if that has not begun."""
        with self._changed:
            self._is_refused = True
            left = [entered for entered in self._entered if isinstance(entered, _Entered)]
            self._entered.clear()
            self._changed.notify_all()
        for entered in left:
            self._drop(entered)

    def _drop(self, entered: _Entered) -> None:
        entered.intake.abandon(entered.submission)
        self._pace.give_back(entered.size)

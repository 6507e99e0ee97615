"""An upload and its answers. Usually a thread reads them; a caller that waits for one reads it itself.

A message that its sender waits for then passes through no other thread: `send` has written it, `result` reads its
answer. One reads at a time:

    the thread    as long as it is attended: at first, and whenever something is under way that no caller waits for
    a caller      otherwise: it waits in `wait_for` for something to arrive, and takes it if it is not attended by then

A caller never waits for the rest of an answer of which a part has arrived, since its time may be over before: it leaves
that to the thread. A caller that finds the thread reading waits for that, once: then the thread leaves the answers to
callers, and only looks a few times a second whether one was left behind: by a caller that gave up, or never asked. It
reads again then, or if there was nothing for a while, so that it notices the end of a connection.

Errors of the stream are kept in `failure` for the thread that repairs it. A caller that is interrupted while it takes
an answer (Ctrl-C) may have lost a part of it: that ends the stream too, and what was not answered is sent again, if it
may be. Lock order: the condition of an outcome, then `_turn`, under which nothing else is locked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

import pyarrow as pa

from headrace.client import fork
from headrace.client.producer.batch import PendingBatch, fitted
from headrace.client.producer.futures import Outcome
from headrace.client.transport.transport import DirectUpload, UploadStream
from headrace.core.errors import AnswerLost, HeadraceError, ServerFailed, Unreachable
from headrace.wire.answers import decode_answer
from headrace.wire.native import Record, WrittenAt

logger = logging.getLogger(__name__)

# How often the thread looks while callers read, and after how many looks without an answer it reads again.
_LOOK_SECONDS: Final = 0.01
_QUIET_LOOKS_MAX: Final = 100
# How often a caller that reads looks whether its outcome was decided otherwise.
_CHECK_SECONDS: Final = 0.02

_INTERRUPTED: Final = AnswerLost("the server", "the thread that used it was interrupted")

Answer: TypeAlias = pa.RecordBatch | WrittenAt | HeadraceError


class ProducerStream:
    """One upload of a producer. One thread writes at a time."""

    def __init__(
        self,
        upload: UploadStream,
        schema: pa.Schema,
        take_answer: Callable[[Answer], HeadraceError | None],
        has_unanswered: Callable[[], bool],
        over: Callable[[], None],
    ) -> None:
        """`over` is called once nothing more is read."""
        self._upload = upload
        # The same, if callers may write to it and read from it.
        self._direct = upload if isinstance(upload, DirectUpload) else None
        self._schema = schema
        self._take_answer = take_answer
        self._has_unanswered = has_unanswered
        self._over = over
        self._born = fork.generation
        self._finished = False
        self.failure: HeadraceError | None = None
        self.is_over = False
        self._turn = threading.Condition()
        # Whether a thread takes an answer now, and how many callers wait for one.
        self._is_read = False
        self._reader = 0
        self._callers = 0
        self._is_attended = True
        # Whether a caller waited while the thread was reading, and how many answers were read.
        self._is_waited_for = False
        self._answers = 0
        self._thread = threading.Thread(target=self._read, name="headrace-receipts", daemon=True)
        self._thread.start()

    # Writing

    def write(self, pending: PendingBatch) -> None:
        """Send a batch, whose answer the thread reads."""
        assert pending.batch is not None, "the pending is prepared"
        batch = fitted(pending.batch, self._schema)
        assert batch is not None, "the stream was made for it"
        with _Sending(pending):
            self._upload.write(batch)
        self.attend()

    @property
    def is_direct(self) -> bool:
        """Whether callers may write to it, and read from it."""
        return self._direct is not None

    def may_write_now(self) -> bool:
        """Whether a caller may write, while nothing is under way: not if it ended meanwhile, or may end soon."""
        return self._direct is not None and not self.is_over and not self._finished and self._direct.is_usable()

    def write_now(self, pending: PendingBatch, record: Record) -> None:
        """Send a message in the thread of its caller, who may read the answer."""
        assert self._direct is not None, "callers write to direct uploads only"
        pending.outcome.stream = self
        with _Sending(pending):
            self._direct.write_message(record)

    def give_up(self, error: BaseException) -> None:
        """Writing failed: end the stream, so that the sender thread repairs it."""
        self.failure = self.failure or (error if isinstance(error, HeadraceError) else _INTERRUPTED)
        self._end()

    def finish(self) -> None:
        """Nothing more is sent."""
        if not self._finished:
            self._finished = True
            try:
                self._upload.finish()
            except HeadraceError as error:
                self.failure = self.failure or error
        self.attend()

    def join(self) -> None:
        """Wait for the last answer."""
        self._thread.join()

    # Reading, by callers

    def attend(self) -> None:
        """Have the thread read: what is under way may be of no caller that waits for it."""
        with self._turn:
            if not self._is_attended:
                self._is_attended = True
                self._turn.notify_all()

    def wait_for(self, outcome: Outcome, timeout_seconds: float | None) -> None:
        """Read until this is decided or the time is over, unless another thread reads, which decides it."""
        fork.check(self._born, "this producer")
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        is_counted = False
        try:
            with self._turn:
                if self._is_attended or self.is_over:
                    self._is_waited_for = True
                    return
                self._callers += 1
                is_counted = True
            while not (outcome.is_decided or self._is_attended or self.is_over):
                left = _CHECK_SECONDS if deadline is None else min(_CHECK_SECONDS, deadline - time.monotonic())
                assert self._direct is not None, "others have a thread that always reads"
                if self._direct.has_answer(max(0.0, left)):
                    self._take_one_as_caller()
                elif left <= 0:
                    return
        finally:
            if is_counted:
                with self._turn:
                    self._callers -= 1
                    is_left = not self._callers and self._has_unanswered()
                if is_left:
                    self.attend()

    def _take_one_as_caller(self) -> None:
        """Read what has arrived, unless another thread does."""
        is_reader = False
        try:
            with self._turn:
                if self._is_read or self._is_attended or self.is_over:
                    return
                self._reader = threading.get_ident()
                is_reader = self._is_read = True
            self._take_one(may_wait=False)
        finally:
            if is_reader:
                with self._turn:
                    self._is_read = False
                    if self._is_attended or self.is_over:
                        self._turn.notify_all()

    def is_read_here(self) -> bool:
        """Whether this thread is taking an answer: a signal handler interrupts it, or a callback is called in it."""
        return self._is_read and self._reader == threading.get_ident()

    # Reading, by the thread

    def _read(self) -> None:
        """The top of the reading thread."""
        while self._gets_turn():
            try:
                self._take_one()
            finally:
                self._leave_turn()

    def _gets_turn(self) -> bool:
        """Wait until the thread is to read; false once the stream is over."""
        quiet, answers = 0, self._answers
        with self._turn:
            while not self.is_over:
                if self._is_attended and not self._is_read:
                    self._reader = threading.get_ident()
                    self._is_read = True
                    return True
                self._turn.wait(None if self._is_attended else _LOOK_SECONDS)
                quiet = quiet + 1 if answers == self._answers and not self._callers else 0
                answers = self._answers
                if quiet >= _QUIET_LOOKS_MAX or (quiet > 1 and self._has_unanswered()):
                    self._is_attended = True
        return False

    def _leave_turn(self) -> None:
        with self._turn:
            self._is_read = False
            if self._is_waited_for and not self._has_unanswered() and not self._finished:
                self._is_attended = self._is_waited_for = False

    # Reading, by either

    def _take_one(self, may_wait: bool = True) -> None:
        """Read an answer, and decide its outcome; or the end. A part of one is left to the thread, which may wait."""
        is_taken = False
        try:
            if not may_wait and self._direct is not None and not self._direct.has_whole_answer():
                self.attend()
                is_taken = True
                return
            answer = self._upload.read() if self._direct is None else self._direct.read_answer()
            if answer is not None:
                self.failure = self._take_answer(decode_answer(answer) if isinstance(answer, pa.Buffer) else answer)
                self._answers += 1
                is_taken = self.failure is None
        except HeadraceError as error:
            self.failure = error
        except Exception as error:
            logger.exception("cannot read the answers to a producer")
            self.failure = ServerFailed(f"its answers cannot be read: {error!r}")
        except BaseException:
            # Interrupted: a part of the answer may be lost.
            self.failure = _INTERRUPTED
            raise
        finally:
            if not is_taken:
                self._end()

    def _end(self) -> None:
        self.is_over = True
        if self.failure is not None and self._direct is not None:
            with suppress(HeadraceError):
                self._direct.cancel()
        with self._turn:
            self._turn.notify_all()
        self._over()


class _Sending:
    """Whether a batch was sent, for what is done when its outcome is unknown. A class: a generator costs more."""

    __slots__ = ("_pending", "_was_sent")

    def __init__(self, pending: PendingBatch) -> None:
        self._pending = pending

    def __enter__(self) -> None:
        self._was_sent, self._pending.was_sent = self._pending.was_sent, True

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, Unreachable):
            # Unless its answer was lost, nothing of this batch was sent now.
            self._pending.was_sent = self._was_sent or not error.nothing_done

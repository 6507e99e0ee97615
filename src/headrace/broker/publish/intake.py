"""The intake of a topic: the only queue between those who publish and the disk. What waits together shares one commit.

A submission flows one way; each step passes a value to the next:

    publish, submit, put      waits for space, then in the queue; a leader takes as many as fit a frame (`combiner`)
    Topic._commit             commits the submissions taken, for all of their publishers
      CommitBuilder             checks their rows
      TopicLog.commit           calls the builder under the write lock, with the current state
        CommitBuilder.build       state, fences -> commits, as values: changes nothing
        write, sync               the commits, as frames or rows of the engine
        TopicState.apply          the written commits, as recovery does
      CommitBuilder.answer      receipts for each submission, a summary for counters
    OutcomeSink.complete      those without a thread are told, once per commit
    Combiner                  the threads wake each other

There are three ways in. `publish` waits with its thread, and leads if nobody does. `submit` never blocks, for event
loops: the outcome goes to a sink, and a thread of the broker leads. `put` and `result` are the two halves of `publish`,
for a stream that one thread reads and another answers.

The queue is bounded. Beyond its bound submissions wait in line: first come, first served, but while others wait, a
caller that has half of the queue waits until it has less. Who has no space in time gets an error, and nothing of it was
accepted. Once a submission is in the queue, its outcome comes, however long it takes. A publisher that wrote to a
partition faster than its topic allows gets the outcome later (`answer_at`), and holds no space meanwhile. What must not
wait with it, such as dropping stages, is done between `write` and `pay`, which are the two steps of `publish`.

Lock order: the queue's lock is never held while committing, nor while a sink is told.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from headrace.broker.publish.combiner import Combiner, Leaders
from headrace.broker.publish.submission import OutcomeSink, Submission, own
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import HeadraceError, OutcomeUnknown, Overloaded, again
from headrace.core.publish.receipts import Receipts
from headrace.core.reports.histogram import SECONDS, Histogram

_TOGETHER_BYTES: Final = 2 << 20
# How often closing a queue checks whether it is empty, in case it was not notified.
_LOOK_SECONDS: Final = 0.1


class TopicIntake(Combiner[Submission]):
    """What waits to be written to one topic. Thread-safe."""

    def __init__(
        self,
        topic: str,
        commit: Callable[[Sequence[Submission]], None],
        messages_max: int,
        settings: BrokerSettings,
        leaders: Leaders | None = None,
    ) -> None:
        super().__init__(leaders)
        self.topic = topic
        self.messages_max = messages_max
        # Small submissions share a sync; larger ones gain nothing from it, and lose what the processor's cache gives.
        self.together_bytes = min(_TOGETHER_BYTES, settings.frame_bytes)
        self._settings = settings
        self.seconds = Histogram(SECONDS)
        self._commit = commit
        # Who waits for space, by account, and how many ever did.
        self._lines: dict[str, deque[Submission]] = {}
        self._turns = 0
        # What is in the queue, in all and of each account.
        self._messages = 0
        self._bytes = 0
        self._held: dict[str, tuple[int, int]] = {}
        self._closed: HeadraceError | None = None
        # Ends the waits of those who wrote too fast.
        self._ending = threading.Event()
        # Where threads in line wait.
        self._room = threading.Condition(self._lock)

    @property
    def depth(self) -> int:
        """The number of waiting messages, including those being written."""
        return self._messages

    @property
    def bytes(self) -> int:
        """The bytes of the waiting submissions."""
        return self._bytes

    @property
    def in_line(self) -> int:
        """How many submissions wait for space."""
        with self._lock:
            return sum(map(len, self._lines.values()))

    def publish(self, submission: Submission, timeout_seconds: float) -> Receipts:
        """Wait until it is written, leading if nobody does, or raise its error; who writes too fast waits longer."""
        receipts = self.write(submission, timeout_seconds)
        self.pay(submission)
        return receipts

    def write(self, submission: Submission, timeout_seconds: float) -> Receipts:
        """The same for a caller that calls `pay` later."""
        self.put(submission, timeout_seconds, is_awaited=True)
        outcome = self._decided(submission)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def pay(self, submission: Submission) -> None:
        """Wait as long as a publisher must that wrote too fast: it is written, and nobody waits for its thread."""
        if submission.answer_at:
            self._ending.wait(submission.delay_seconds)

    def end_waits(self) -> None:
        """Answer those who wrote too fast at once, from now on: the server stops."""
        self._ending.set()

    def put(self, submission: Submission, timeout_seconds: float, is_awaited: bool = False) -> None:
        """Put one in whose outcome a thread asks for later, by `result`; waits for space.

        It is awaited if that thread is this one, and asks at once.
        """
        try:
            with self._lock:
                self._come_in(submission)
                deadline = submission.since + timeout_seconds
                while not submission.is_counted and not submission.is_decided:
                    left = deadline - time.monotonic()
                    if left <= 0 and self._leave_line(submission):
                        raise self._overloaded(timeout_seconds)
                    self._room.wait(left)
                if submission.error is not None:
                    raise submission.error
                if is_awaited and not submission.is_decided:
                    self.come(submission)
        except BaseException:
            self.abandon(submission)
            raise

    def result(self, submission: Submission) -> Receipts | Exception:
        """The outcome of one that was put in, leading if nobody does; for one thread, once."""
        outcome = self._decided(submission)
        self.pay(submission)
        return outcome

    def _decided(self, submission: Submission) -> Receipts | Exception:
        try:
            if not submission.is_awaited:
                with self._lock:
                    if not submission.is_decided:
                        self.come(submission)
            self.wait(submission)
        except BaseException:
            self.abandon(submission)
            raise
        self.seconds.observe(time.monotonic() - submission.since)
        return submission.outcome

    def submit(self, submission: Submission) -> bool:
        """Take one with a sink, without waiting; returns whether there was space, or else it is in line.

        Raises if the topic has ended.
        """
        with self._lock:
            self._come_in(submission)
            if submission.is_counted and self._leading is None:
                self.ask()
            return submission.is_counted

    def withdraw(self, submission: Submission) -> bool:
        """Withdraw one that is in line, or that no leader has taken; returns whether that was so."""
        with self._lock:
            if submission not in self._waiting:
                return self._leave_line(submission)
            self._waiting.remove(submission)
            self.forget([submission])
            return True

    def give_up(self, submission: Submission, waited_seconds: float) -> Overloaded | None:
        """Withdraw one that is still in line; returns the error that says so, or None if it is in the queue by now."""
        with self._lock:
            return self._overloaded(waited_seconds) if self._leave_line(submission) else None

    def abandon(self, submission: Submission) -> None:
        """Withdraw one that no leader has taken; a leader passes the lead on."""
        with self._lock:
            self._leave_line(submission)
        super().abandon(submission)

    def close(self, reason: HeadraceError) -> None:
        """Refuse new submissions and those in line, and wait for those in the queue."""
        with self._lock:
            self._closed = reason
            self.end_waits()
            refused = [submission for line in self._lines.values() for submission in line]
            self._lines.clear()
            for submission in refused:
                submission.error = again(reason)
            self._room.notify_all()
        self.tell(refused)
        while True:
            # What no thread awaits just now.
            self.lead()
            with self._lock:
                if self._leading is not None:
                    self._idle.wait(_LOOK_SECONDS)
                elif not self._waiting:
                    return

    def _come_in(self, submission: Submission) -> None:
        """Into the queue if there is space, or else into the line; the caller holds the lock."""
        if self._closed is not None:
            raise again(self._closed)
        submission.since = time.monotonic()
        lane = submission.lane
        if lane is not None:
            lane.last += 1
            submission.number = lane.last
        if not self._lines and not self._is_full(submission):
            self._count(submission)
            self.enter(submission)
            return
        self._turns += 1
        submission.turn = self._turns
        self._lines.setdefault(submission.account, deque()).append(submission)
        self._admit()

    def _admit(self) -> None:
        """Let those in line into the queue, as far as there is space; the caller holds the lock."""
        if not self._lines:
            return
        while self._lines and not self._is_full(first := self._first_in_line()):
            self._leave(first)
            self._count(first)
            self.enter(first)
            if first.has_no_thread and self._leading is None:
                self.ask()
        self._room.notify_all()

    def _first_in_line(self) -> Submission:
        """Who is next: the first that came, but those whose account has half of the queue come after all others."""
        account = min(self._lines, key=lambda account: (self._has_half(account), self._lines[account][0].turn))
        return self._lines[account][0]

    def _has_half(self, account: str) -> bool:
        messages, size = self._held.get(account, (0, 0))
        return 2 * messages >= self.messages_max or 2 * size >= self._settings.queue_bytes

    def _leave_line(self, submission: Submission) -> bool:
        """Take one out of the line, if it is there, and let in what waits behind it; the caller holds the lock."""
        if submission not in self._lines.get(submission.account, ()):
            return False
        self._leave(submission)
        self._admit()
        return True

    def _leave(self, submission: Submission) -> None:
        line = self._lines[submission.account]
        line.remove(submission)
        if not line:
            del self._lines[submission.account]

    def _overloaded(self, waited_seconds: float) -> Overloaded:
        return Overloaded(f"the publish queue of topic {self.topic!r}", self.messages_max, waited_seconds)

    def _is_full(self, submission: Submission) -> bool:
        """Whether there is no space; a submission that is larger than the queue may enter an empty one."""
        too_many = self._messages + submission.rows > self.messages_max
        too_large = self._bytes + submission.bytes > self._settings.queue_bytes
        return (too_many or too_large) and self._messages > 0

    def _count(self, submission: Submission) -> None:
        submission.is_counted = True
        self._add(submission.account, submission.rows, submission.bytes)

    def forget(self, jobs: Sequence[Submission]) -> None:
        """Free their space; the caller holds the lock."""
        for submission in jobs:
            if submission.is_counted:
                submission.is_counted = False
                self._add(submission.account, -submission.rows, -submission.bytes)
        self._admit()

    def _add(self, account: str, messages: int, size: int) -> None:
        self._messages += messages
        self._bytes += size
        if account:
            held_messages, held_bytes = self._held.get(account, (0, 0))
            self._held[account] = held = (held_messages + messages, held_bytes + size)
            if held == (0, 0):
                del self._held[account]

    def work(self, taken: Sequence[Submission]) -> None:
        """Commit some submissions, or give each its error."""
        left = [submission for submission in taken if not submission.is_refused()]
        try:
            if left:
                self._commit(left)
        except Exception as error:
            _fail(taken, error)
        except BaseException as interrupt:
            _fail(taken, OutcomeUnknown(self.topic, f"the publisher that wrote was interrupted: {interrupt!r}"))
            raise

    def take(self, taken: list[Submission]) -> None:
        """The first submissions, as many as fit one frame and are worth sharing it, at least one."""
        rows = size = 0
        while self._waiting:
            first = self._waiting[0]
            rows, size = rows + first.rows, size + first.bytes
            if taken and (rows > self._settings.frame_rows or size > self.together_bytes):
                break
            taken.append(first)
            self._waiting.popleft()

    def fail(self, taken: Sequence[Submission]) -> None:
        """The outcome of undecided submissions is unknown."""
        undecided = [submission for submission in taken if submission.receipts is None]
        _fail(undecided, OutcomeUnknown(self.topic, "the publisher that wrote was interrupted"))

    def tell(self, taken: Sequence[Submission]) -> None:
        """Hand those without a thread to their sinks."""
        by_sink: dict[OutcomeSink, list[Submission]] = {}
        for submission in taken:
            if submission.sink is not None:
                by_sink.setdefault(submission.sink, []).append(submission)
        now = time.monotonic()
        for sink, done in by_sink.items():
            sink.complete(done)
            for submission in done:
                submission.sink = None
                self.seconds.observe(now - submission.since)


def _fail(submissions: Sequence[Submission], error: Exception) -> None:
    """Give each submission its own copy of the error, except those that were refused separately."""
    for submission in submissions:
        if submission.error is None:
            submission.refuse(own(error))

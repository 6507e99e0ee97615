"""What an event loop submits to the intakes of topics, and how it learns the outcomes.

    submit (event loop)  ->  the queue of the topic, or the line before it  ->  a thread of the broker commits
                         ->  complete (that thread): one call to the loop per commit  ->  each `tell` (event loop)

What waits here counts in the queue of its topic from the start, and that is the only limit. A publisher that wrote
faster than its topic allows is told later, or at once if the server stops.

Belongs to the event loop, except `complete`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from headrace.broker.publish.intake import TopicIntake
from headrace.broker.publish.submission import Submission
from headrace.core.publish.receipts import Receipts
from headrace.edge.draining import Draining

Outcome = Receipts | Exception
Tell = Callable[[Outcome], None]


class LoopSink:
    """All submissions of one event loop."""

    def __init__(self, seconds: float, draining: Draining) -> None:
        self._loop = asyncio.get_running_loop()
        self._draining = draining
        draining.on_begin(self._tell_late)
        # How long one may wait for space in a queue.
        self._seconds = seconds
        # By submission whom to tell, and when it has waited for too long, if it waits for space.
        self._waiting: dict[Submission, tuple[Tell, asyncio.TimerHandle | None]] = {}
        # Decided, and to be told later.
        self._late: dict[Submission, None] = {}

    def submit(self, intake: TopicIntake, submission: Submission, tell: Tell) -> None:
        """Submit; `tell` gets the receipts or the error, later. Raises if the topic has ended."""
        self._waiting[submission] = tell, None
        try:
            has_space = intake.submit(submission)
        except BaseException:
            del self._waiting[submission]
            raise
        if not has_space:
            timer = self._loop.call_later(self._seconds, self._give_up, intake, submission)
            self._waiting[submission] = tell, timer

    def withdraw(self, intake: TopicIntake, submission: Submission) -> None:
        """Nobody wants it any more: it is not written, unless it is being written now; `tell` is not called."""
        intake.withdraw(submission)
        self._forget(submission)

    def complete(self, done: Sequence[Submission]) -> None:
        """These are decided; called by the thread that committed."""
        # The loop may be closed when the last topics end.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell, done)

    def _tell(self, done: Sequence[Submission]) -> None:
        for submission in done:
            seconds = submission.delay_seconds
            if submission in self._late:
                continue
            if seconds > 0 and submission in self._waiting and not self._draining.has_begun:
                tell, timer = self._waiting[submission]
                if timer is not None:
                    timer.cancel()
                self._late[submission] = None
                self._waiting[submission] = tell, self._loop.call_later(seconds, self._tell_one, submission)
            else:
                self._tell_one(submission)

    def _tell_one(self, submission: Submission) -> None:
        tell = self._forget(submission)
        if tell is not None:
            tell(submission.outcome)

    def _tell_late(self) -> None:
        for submission in list(self._late):
            self._tell_one(submission)

    def _give_up(self, intake: TopicIntake, submission: Submission) -> None:
        error = intake.give_up(submission, self._seconds)
        tell = None if error is None else self._forget(submission)
        if error is not None and tell is not None:
            tell(error)

    def _forget(self, submission: Submission) -> Tell | None:
        self._late.pop(submission, None)
        tell, timer = self._waiting.pop(submission, (None, None))
        if timer is not None:
            timer.cancel()
        return tell

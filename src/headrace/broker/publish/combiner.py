"""Combines the jobs of many threads: one of them, the leader, does the work for all that wait.

There is no extra thread. The first job to arrive leads: its thread takes all waiting jobs, including its own, and does
the work. Jobs that arrive meanwhile wait; when the leader is done, the first of them leads. So a single thread pays for
no thread switch, and many threads share one commit.

Threads whose jobs are done wake each other, one after another, and the last of them passes the lead on. Woken at once,
they would all compete for the GIL; this way each finds it free, and is back with its next job before the next leader
takes what waits. An interrupted thread is skipped, or wakes the next on its way out. If other threads keep the GIL
busy, each step would wait for it: when that is detected, all are woken at once for a while.

A thread may be interrupted anywhere, as the main thread is by Ctrl-C. It withdraws its jobs if no leader has taken
them. If it leads, it gives up: the jobs it has taken fail, and the lead is passed on. So every step is idempotent, and
steps that must be atomic contain no call, because Python handles interrupts only there. Thread-safe; the lock is never
held during the work.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

# If waking takes longer than this per thread, the threads of the next commits are woken at once.
STEP_SECONDS_MAX: Final = 0.001
AT_ONCE_COMMITS: Final = 64


@dataclass(slots=True, eq=False)
class Waiter:
    """A job of one thread, and how the thread is woken."""

    leads: bool = field(default=False, init=False)
    is_abandoned: bool = field(default=False, init=False)
    # Which one its thread wakes once it was woken itself; or else whose lead it passes on.
    next: Waiter | None = field(default=None, init=False)
    passes: Waiter | None = field(default=None, init=False)
    # Held from the start of waiting until it is decided.
    decided: threading.Lock = field(default_factory=threading.Lock, init=False)


Job = TypeVar("Job", bound=Waiter)


class Combiner(Generic[Job]):
    """The jobs that wait for the same work, which `work` does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: deque[Job] = deque()
        # The job whose thread leads, or is to lead, and the jobs it has taken.
        self._leading: Job | None = None
        self._taken: list[Job] = []
        # The number of commits for which all are woken at once; and the deadline of waking one after another.
        self._at_once = 0
        self._waking_until = 0.0

    def work(self, taken: Sequence[Job]) -> None:
        """Do some jobs. Each job records its own failure: an error that is raised here is the leader's."""
        raise NotImplementedError

    def take(self, taken: list[Job]) -> None:
        """Move the next jobs, at least one, out of those waiting; the caller holds the lock."""
        taken.extend(self._waiting)
        self._waiting.clear()

    def fail(self, taken: Sequence[Job]) -> None:
        """The leader was interrupted: fail the jobs that have no outcome yet."""

    def forget(self, jobs: Sequence[Job]) -> None:
        """These are done, or withdrawn; the caller holds the lock. Idempotent."""

    def share(self, job: Job) -> None:
        """Get a job done, by this thread or by another."""
        try:
            with self._lock:
                job.decided.acquire()
                self._waiting.append(job)
                self.come(job)
            self.wait([job])
        except BaseException:
            self.abandon([job])
            raise

    def come(self, job: Job) -> None:
        """Lead, if no thread does; the caller holds the lock, and this, its first job, is waiting."""
        if self._leading is None:
            job.leads = True
            self._leading = job

    def wait(self, jobs: Sequence[Job]) -> None:
        """Wait until all jobs are done, leading whenever it is their turn; if it raises, `abandon` them."""
        for job in jobs:
            if not job.leads:
                job.decided.acquire()
            if job.leads:
                self._lead(job)
                job.decided.acquire()
            self._wake_next(job)

    def abandon(self, jobs: Sequence[Job]) -> None:
        """Withdraw the jobs that no leader has taken; a leader passes the lead on."""
        with self._lock:
            left = [job for job in jobs if job in self._waiting and job not in self._taken]
            for job in left:
                self._waiting.remove(job)
            self.forget(left)
            for job in jobs:
                job.is_abandoned = True
            leading = self._leading
            if leading is not None and leading in jobs:
                self._give_up(leading)
        for job in jobs:
            self._wake_next(job)

    def _lead(self, leading: Job) -> None:
        with self._lock:
            self.take(self._taken)
        try:
            self.work(self._taken)
        finally:
            with self._lock:
                self.forget(self._taken)
                self._hand_over(leading)

    def _hand_over(self, leading: Job) -> None:
        """Wake the first thread whose job is done, which wakes the next, and so on; the last passes the lead on.

        The caller holds the lock.
        """
        taken = self._taken
        following: Waiter | None = None
        if self._at_once:
            self._at_once -= 1
        else:
            for job in reversed(taken):
                if not job.is_abandoned:
                    job.next, job.passes, following = following, leading if following is None else None, job
            self._waking_until = time.monotonic() + len(taken) * STEP_SECONDS_MAX
        if following is not None:
            _wake(following)
        else:
            self._wake_all(leading)

    def _wake_next(self, waiter: Waiter) -> None:
        """Wake the next thread, after this one was woken or stopped waiting."""
        if waiter.next is not None:
            _wake(waiter.next)
        elif waiter.passes is not None:
            with self._lock:
                if self._leading is waiter.passes:
                    self._at_once = AT_ONCE_COMMITS if time.monotonic() > self._waking_until else 0
                self._pass_lead(waiter.passes)
                # It may be itself: what it holds would be kept until a garbage collection.
                waiter.passes = None

    def _give_up(self, leading: Job) -> None:
        """End a lead at any point; the caller holds the lock."""
        taken = self._taken
        for job in taken:
            job.next = job.passes = None
            if job in self._waiting:
                self._waiting.remove(job)
        self.fail(taken)
        self.forget(taken)
        self._wake_all(leading)

    def _wake_all(self, leading: Job) -> None:
        for job in self._taken:
            _wake(job)
        self._pass_lead(leading)

    def _pass_lead(self, leading: Waiter) -> None:
        """Let the first waiting job lead, unless this lead was passed on before; the caller holds the lock."""
        if self._leading is not leading:
            return
        self._taken = []
        if not self._waiting:
            self._leading = None
            self._idle.notify_all()
            return
        first = self._waiting[0]
        # Not by `_wake`: an interrupt at the call would leave a leader that no thread wakes.
        try:
            first.leads = True
            self._leading = first
            first.decided.release()
        except RuntimeError:
            # It was woken before.
            pass


def _wake(waiter: Waiter) -> None:
    """Wake a thread; idempotent."""
    with suppress(RuntimeError):
        waiter.decided.release()

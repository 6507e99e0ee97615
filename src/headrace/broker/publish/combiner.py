"""Combines the jobs of many threads: one of them, the leader, does the work for all that wait.

There is no extra thread. The first job to arrive leads: its thread takes all waiting jobs, including its own, and does
the work. Jobs that arrive meanwhile wait; when the leader is done, the first of them leads. So a single thread pays for
no thread switch, and many threads share one commit.

Only a thread that waits now can lead. A job may be put in by one thread and awaited by another, later: until then it is
done by whoever leads, and if nobody does, it waits for its thread. A job without any thread is told its outcome
(`tell`); if only such jobs are left, a thread of a pool leads (`Leaders`).

Threads whose jobs are done wake each other, one after another, and the last of them passes the lead on. Woken at once,
they would all compete for the GIL; this way each finds it free, and is back with its next job before the next leader
takes what waits. An interrupted thread is skipped, or wakes the next on its way out. If other threads keep the GIL
busy, each step would wait for it: when that is detected, all are woken at once for a while.

A thread may be interrupted anywhere, as the main thread is by Ctrl-C. It withdraws its job if no leader has taken it.
If it leads, it gives up: the jobs it has taken fail, and the lead is passed on. So every step is idempotent, and
steps that must be atomic contain no call, because Python handles interrupts only there. Thread-safe; the lock is never
held during the work.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

# If waking takes longer than this per thread, the threads of the next commits are woken at once.
STEP_SECONDS_MAX: Final = 0.001
AT_ONCE_COMMITS: Final = 64
# How many commits without a thread of their own are written at a time; more take turns.
THREADS: Final = 16


@dataclass(slots=True, eq=False)
class Waiter:
    """A job, and how the thread that waits for it is woken."""

    leads: bool = field(default=False, init=False)
    # Whether its thread waits now, and so may lead; and whether it never will, since it has none.
    is_awaited: bool = field(default=False, init=False)
    has_no_thread: bool = field(default=False, init=False)
    is_abandoned: bool = field(default=False, init=False)
    # Which one its thread wakes once it was woken itself; or else whose lead it passes on.
    next: Waiter | None = field(default=None, init=False)
    passes: Waiter | None = field(default=None, init=False)
    # Held from the start of waiting until it is decided.
    decided: threading.Lock = field(default_factory=threading.Lock, init=False)


Job = TypeVar("Job", bound=Waiter)


class Leaders:
    """Threads that lead for jobs without a thread. If more is to be led than there are threads, all take turns."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="headrace-publish")
        self._lock = threading.Lock()
        self._asked = 0

    def ask(self, lead: Callable[[], bool]) -> None:
        """Have a thread lead, as long as it returns that there is more to do."""
        with self._lock:
            self._asked += 1
        self._pool.submit(self._run, lead)

    def close(self) -> None:
        """End the threads once nothing is left to lead."""
        self._pool.shutdown(wait=False)

    def _run(self, lead: Callable[[], bool]) -> None:
        while lead():
            if self._asked > self._threads:
                self._pool.submit(self._run, lead)
                return
        with self._lock:
            self._asked -= 1


class Combiner(Generic[Job]):
    """The jobs that wait for the same work, which `work` does."""

    def __init__(self, leaders: Leaders | None = None) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: deque[Job] = deque()
        # The job whose thread leads, or is to lead, and the jobs it has taken.
        self._leading: Waiter | None = None
        self._taken: list[Job] = []
        # Who leads for jobs without a thread; whether one of those threads is at work, and is to lead again.
        self._leaders = leaders
        self._is_led = False
        self._leads_again = False
        # The number of commits for which all are woken at once; and the deadline of waking one after another.
        self._at_once = 0
        self._waking_until = 0.0

    def work(self, taken: Sequence[Job]) -> None:
        """Do some jobs. Each job records its own failure: an error that is raised here is the leader's."""
        raise NotImplementedError

    def take(self, taken: list[Job]) -> None:
        """Move the next jobs, at least one if any waits, out of those waiting; the caller holds the lock."""
        taken.extend(self._waiting)
        self._waiting.clear()

    def fail(self, taken: Sequence[Job]) -> None:
        """The leader was interrupted: fail the jobs that have no outcome yet."""

    def forget(self, jobs: Sequence[Job]) -> None:
        """These are done, or withdrawn; the caller holds the lock. Idempotent."""

    def tell(self, taken: Sequence[Job]) -> None:
        """Tell the outcome of those jobs that have no thread; must not block. Idempotent."""

    def share(self, job: Job) -> None:
        """Get a job done, by this thread or by another."""
        try:
            with self._lock:
                self.enter(job)
                self.come(job)
            self.wait(job)
        except BaseException:
            self.abandon(job)
            raise

    def enter(self, job: Job) -> None:
        """Put a job in; the caller holds the lock."""
        if not job.has_no_thread:
            job.decided.acquire()
        self._waiting.append(job)

    def come(self, job: Job) -> None:
        """Its thread waits from now on, and leads if no thread does; the caller holds the lock."""
        job.is_awaited = True
        if self._leading is None:
            job.leads = True
            self._leading = job

    def wait(self, job: Job) -> None:
        """Wait until a job is done, leading whenever it is its turn; if it raises, `abandon` it."""
        if not job.leads:
            job.decided.acquire()
        while job.leads:
            job.leads = False
            self._lead(job)
            job.decided.acquire()
        self._wake_next(job)

    def abandon(self, job: Job) -> None:
        """Withdraw a job that no leader has taken; a leader passes the lead on."""
        with self._lock:
            if job in self._waiting and job not in self._taken:
                self._waiting.remove(job)
                self.forget([job])
            job.is_abandoned = True
            if self._leading is job:
                self._give_up(job)
        self._wake_next(job)

    def lead(self) -> None:
        """Lead once, if anything waits and nobody leads; returns when that is over. For a thread without a job."""
        leader = Waiter()
        with self._lock:
            if self._leading is not None or not self._waiting:
                return
            self._leading = leader
        self._lead(leader)

    def ask(self) -> None:
        """Have a thread of the pool lead; the caller holds the lock, and nobody leads."""
        assert self._leaders is not None, "jobs without a thread need threads that lead"
        if self._is_led:
            self._leads_again = True
        else:
            self._leaders.ask(self._lead_in_pool)
            self._is_led = True
        leader = Waiter()
        leader.has_no_thread = True
        self._leading = leader

    def _lead_in_pool(self) -> bool:
        """Lead as a thread of the pool; returns whether to lead again."""
        with self._lock:
            leader = self._leading
        try:
            # Not if who asked was interrupted before that was all.
            if leader is not None and leader.has_no_thread:
                self._lead(leader)
        finally:
            with self._lock:
                self._is_led = again = self._leads_again
                self._leads_again = False
        return again

    def _lead(self, leading: Waiter) -> None:
        with self._lock:
            self.take(self._taken)
        try:
            self.work(self._taken)
        finally:
            with self._lock:
                self.forget(self._taken)
            self.tell(self._taken)
            with self._lock:
                self._hand_over(leading)

    def _hand_over(self, leading: Waiter) -> None:
        """Wake the first thread whose job is done, which wakes the next, and so on; the last passes the lead on.

        The caller holds the lock.
        """
        taken = self._taken
        following: Job | None = None
        if self._at_once:
            self._at_once -= 1
        else:
            for job in reversed(taken):
                if not job.is_awaited:
                    _wake(job)
                elif not job.is_abandoned:
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

    def _give_up(self, leading: Waiter) -> None:
        """End a lead at any point; the caller holds the lock."""
        taken = self._taken
        for job in taken:
            job.next = job.passes = None
            if job in self._waiting:
                self._waiting.remove(job)
        self.fail(taken)
        self.forget(taken)
        self.tell(taken)
        self._wake_all(leading)

    def _wake_all(self, leading: Waiter) -> None:
        for job in self._taken:
            _wake(job)
        self._pass_lead(leading)

    def _pass_lead(self, leading: Waiter) -> None:
        """Let the first waiting job lead, unless this lead was passed on before; the caller holds the lock."""
        if self._leading is not leading:
            return
        self._taken = []
        first = next((job for job in self._waiting if job.is_awaited or job.has_no_thread), None)
        if first is None:
            self._leading = None
            self._idle.notify_all()
        elif first.has_no_thread:
            self.ask()
        else:
            # Not by `_wake`: an interrupt at the call would leave a leader that no thread wakes.
            try:
                first.leads = True
                self._leading = first
                first.decided.release()
            except RuntimeError:
                # It was woken before.
                pass


def _wake(waiter: Waiter) -> None:
    """Wake a thread, or let it find the outcome when it comes; idempotent."""
    if not waiter.has_no_thread:
        with suppress(RuntimeError):
            waiter.decided.release()

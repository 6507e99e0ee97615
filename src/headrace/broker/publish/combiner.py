"""Work that one of many threads does for all who wait: a commit that a crowd shares.

There is no thread for it. The first to come leads: it takes everything that waits, its own among it, and does the
work. Whoever comes meanwhile waits; when the leader is done, the first of those leads. So one alone pays for no thread
switch, and a crowd pays for one commit.

Those whose work is done wake each other, one after another, and the last of them passes the lead on. Woken at once they
would all fight for the interpreter, which only one can have; so each finds it free, and is back with what it wants next
before the next leader takes what waits. Who was interrupted is left out, or wakes the next in going. Where other
threads keep the interpreter busy each step would wait for it: if that is seen, all are woken at once for a while.

A thread may be interrupted anywhere, as the main thread is by Ctrl-C. It takes back what it wants if nobody has taken
it. If it leads, which the crowd knows it by, it gives up: whoever waited for it is told so, and the lead goes on. So
every step can be done twice, and whatever must not come apart has no call in it, since Python interrupts only there.
Safe for threads; the lock is never held while work is done.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

# Above so many seconds for each that was woken, those of the next so many commits are woken at once.
STEP_SECONDS_MAX: Final = 0.001
AT_ONCE_COMMITS: Final = 64


@dataclass(slots=True, eq=False)
class Waiter:
    """What one thread wants done, and how it is woken."""

    leads: bool = field(default=False, init=False)
    is_abandoned: bool = field(default=False, init=False)
    # Whom its thread wakes once it was woken itself; or else whose lead it passes on.
    next: Waiter | None = field(default=None, init=False)
    passes: Waiter | None = field(default=None, init=False)
    # Held from when it is put among those waiting until it is decided.
    decided: threading.Lock = field(default_factory=threading.Lock, init=False)


Job = TypeVar("Job", bound=Waiter)


class Combiner(Generic[Job]):
    """All who wait for the same work; what that is, `work` says."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: deque[Job] = deque()
        # The wish whose thread leads, or is to lead, and what it has taken.
        self._leading: Job | None = None
        self._taken: list[Job] = []
        # For so many commits all are woken at once; else the time until which one after another is quick enough.
        self._at_once = 0
        self._waking_until = 0.0

    def work(self, taken: Sequence[Job]) -> None:
        """Do what some want. What fails is for each of them to know: an error that comes out is the leader's."""
        raise NotImplementedError

    def take(self, taken: list[Job]) -> None:
        """Move what is done next, at least one, out of those waiting; the caller holds the lock."""
        taken.extend(self._waiting)
        self._waiting.clear()

    def fail(self, taken: Sequence[Job]) -> None:
        """The leader was interrupted: tell those whose outcome it has not told."""

    def forget(self, wishes: Sequence[Job]) -> None:
        """These are done, or taken back; the caller holds the lock. Twice does no harm."""

    def share(self, wish: Job) -> None:
        """Have one's wish done, by this thread or by another."""
        try:
            with self._lock:
                wish.decided.acquire()
                self._waiting.append(wish)
                self.come(wish)
            self.wait([wish])
        except BaseException:
            self.abandon([wish])
            raise

    def come(self, wish: Job) -> None:
        """Lead, if nobody does; the caller holds the lock, and has put this, its first wish, among those waiting."""
        if self._leading is None:
            wish.leads = True
            self._leading = wish

    def wait(self, wishes: Sequence[Job]) -> None:
        """Wait until all one's wishes are done, leading whenever it is one's turn; if it raises, `abandon` them."""
        for wish in wishes:
            if not wish.leads:
                wish.decided.acquire()
            if wish.leads:
                self._lead(wish)
                wish.decided.acquire()
            self._wake_next(wish)

    def abandon(self, wishes: Sequence[Job]) -> None:
        """Take back what nobody has taken; whoever has the lead must not just go."""
        with self._lock:
            left = [wish for wish in wishes if wish in self._waiting and wish not in self._taken]
            for wish in left:
                self._waiting.remove(wish)
            self.forget(left)
            for wish in wishes:
                wish.is_abandoned = True
            leading = self._leading
            if leading is not None and leading in wishes:
                self._give_up(leading)
        for wish in wishes:
            self._wake_next(wish)

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
        """Wake the first whose wish is done, which wakes the next, and so on; the last passes the lead on.

        The caller holds the lock.
        """
        taken = self._taken
        following: Waiter | None = None
        if self._at_once:
            self._at_once -= 1
        else:
            for wish in reversed(taken):
                if not wish.is_abandoned:
                    wish.next, wish.passes, following = following, leading if following is None else None, wish
            self._waking_until = time.monotonic() + len(taken) * STEP_SECONDS_MAX
        if following is not None:
            _wake(following)
        else:
            self._wake_all(leading)

    def _wake_next(self, waiter: Waiter) -> None:
        """After a thread was woken, or will not wait any more."""
        if waiter.next is not None:
            _wake(waiter.next)
        elif waiter.passes is not None:
            with self._lock:
                if self._leading is waiter.passes:
                    self._at_once = AT_ONCE_COMMITS if time.monotonic() > self._waking_until else 0
                self._pass_lead(waiter.passes)

    def _give_up(self, leading: Job) -> None:
        """End a lead wherever it is; the caller holds the lock."""
        taken = self._taken
        for wish in taken:
            wish.next = wish.passes = None
            if wish in self._waiting:
                self._waiting.remove(wish)
        self.fail(taken)
        self.forget(taken)
        self._wake_all(leading)

    def _wake_all(self, leading: Job) -> None:
        for wish in self._taken:
            _wake(wish)
        self._pass_lead(leading)

    def _pass_lead(self, leading: Waiter) -> None:
        """Let the first who waits lead, unless this lead was passed on before; the caller holds the lock."""
        if self._leading is not leading:
            return
        self._taken = []
        if not self._waiting:
            self._leading = None
            self._idle.notify_all()
            return
        first = self._waiting[0]
        # Not by `_wake`: on the way into it an interrupt would leave a leader that nobody wakes.
        try:
            first.leads = True
            self._leading = first
            first.decided.release()
        except RuntimeError:
            # It was woken before.
            pass


def _wake(waiter: Waiter) -> None:
    """Let a thread go on; twice does no harm."""
    with suppress(RuntimeError):
        waiter.decided.release()

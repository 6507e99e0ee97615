"""Work that one of many threads does for all who wait: a commit that a crowd shares.

There is no thread for it. The first to come leads: it takes everything that waits, its own among it, and does the
work. Whoever comes meanwhile waits; when the leader is done, the first of those leads. So one alone pays for no thread
switch, and a crowd pays for one commit.

Those whose work is done wake each other, one after another, and the last of them passes the lead on. Woken at once they
would all fight for the interpreter, which only one can have; so each finds it free, and is back with what it wants next
before the next leader takes what waits. Who was interrupted is left out, or wakes the next in going. Where other
threads keep the interpreter busy each step would wait for it: if that is seen, all are woken at once for a while.

A thread that is interrupted while it waits takes its wish back, and passes the lead on if it was handed to it. Safe for
threads; the lock is never held while work is done.
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


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class Waiter:
    """What one thread wants done, and how it is woken."""

    leads: bool = field(default=False, init=False)
    is_abandoned: bool = field(default=False, init=False)
    # Whom its thread wakes once it was woken itself; or else whether it passes the lead on.
    next: Waiter | None = field(default=None, init=False)
    is_last: bool = field(default=False, init=False)
    decided: threading.Lock = field(default_factory=_locked, init=False)


Wish = TypeVar("Wish", bound=Waiter)


class Crowd(Generic[Wish]):
    """All who wait for the same work; what that is, `work` says."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: deque[Wish] = deque()
        self._has_leader = False
        # For so many commits all are woken at once; else the time until which one after another is quick enough.
        self._at_once = 0
        self._waking_until = 0.0

    def work(self, taken: Sequence[Wish]) -> None:
        """Do what some want. What fails is for each of them to know: an error that comes out is the leader's."""
        raise NotImplementedError

    def take(self) -> list[Wish]:
        """What is done next, at least one; the caller holds the lock."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def forget(self, wishes: Sequence[Wish]) -> None:
        """These are done, or taken back; the caller holds the lock."""

    def share(self, wish: Wish) -> None:
        """Have one's wish done, by this thread or by another."""
        with self._lock:
            self._waiting.append(wish)
            leads = self.comes_first()
        self.wait([wish], leads)

    def comes_first(self) -> bool:
        """Whether who comes now has to lead; the caller holds the lock, and has put its wishes among those waiting."""
        leads = not self._has_leader
        self._has_leader = True
        return leads

    def wait(self, wishes: Sequence[Wish], leads: bool) -> None:
        """Wait until all one's wishes are done, leading whenever it is one's turn."""
        try:
            if leads:
                self._lead()
            for wish in wishes:
                wish.decided.acquire()
                if wish.leads:
                    self._lead()
                    wish.decided.acquire()
                self._wake_next(wish)
        except BaseException:
            self._abandon(wishes)
            raise

    def _lead(self) -> None:
        with self._lock:
            taken = self.take()
        try:
            self.work(taken)
        finally:
            self._hand_over(taken)

    def _hand_over(self, taken: Sequence[Wish]) -> None:
        """Wake the first whose wish is done, which wakes the next, and so on; the last passes the lead on."""
        following: Waiter | None = None
        with self._lock:
            self.forget(taken)
            if self._at_once:
                self._at_once -= 1
            else:
                for wish in reversed(taken):
                    if not wish.is_abandoned:
                        wish.next, wish.is_last, following = following, following is None, wish
                self._waking_until = time.monotonic() + len(taken) * STEP_SECONDS_MAX
            if following is None:
                self._pass_lead()
        for waiter in taken if following is None else [following]:
            _wake(waiter)

    def _wake_next(self, waiter: Waiter) -> None:
        """After a thread was woken, or will not wait any more."""
        if waiter.next is not None:
            _wake(waiter.next)
        elif waiter.is_last:
            with self._lock:
                if waiter.is_last:
                    waiter.is_last = False
                    self._at_once = AT_ONCE_COMMITS if time.monotonic() > self._waking_until else 0
                    self._pass_lead()

    def _pass_lead(self) -> None:
        if self._waiting:
            self._waiting[0].leads = True
            _wake(self._waiting[0])
        else:
            self._has_leader = False
            self._idle.notify_all()

    def _abandon(self, wishes: Sequence[Wish]) -> None:
        """Take back what is not being done; whoever has the lead must not just go."""
        with self._lock:
            waiting = [wish for wish in wishes if wish in self._waiting]
            for wish in waiting:
                self._waiting.remove(wish)
            self.forget(waiting)
            for wish in wishes:
                wish.is_abandoned = True
            if any(wish.leads for wish in waiting):
                self._pass_lead()
        for wish in wishes:
            self._wake_next(wish)


def _wake(waiter: Waiter) -> None:
    """Let a thread go on; twice does no harm."""
    with suppress(RuntimeError):
        waiter.decided.release()

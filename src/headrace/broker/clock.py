"""Clocks that can be injected. Waiting uses the system's monotonic clock directly.

Three kinds of time:

    now_us       the wall clock: when messages were written, and how old they are. It may jump, ahead or back.
    session_us   for sessions of members, independent of the time of day. One server uses its monotonic clock; servers
                 that share a database use the database's clock, because they have to agree.
    ClockWatch   compares the time of day with the monotonic clock, and so notices a jump.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from headrace.core.limits import CLOCK_JUMP_SECONDS, MICROSECONDS

DatabaseTime = Callable[[], int]


class Clock(Protocol):
    """A clock."""

    def now_us(self) -> int: ...

    def monotonic_us(self) -> int: ...

    def session_us(self, database_us: DatabaseTime | None) -> int: ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Microseconds of the monotonic clock."""
        return time.monotonic_ns() // 1000

    def session_us(self, database_us: DatabaseTime | None) -> int:
        """The clock for sessions: that of the shared database, if there is one."""
        return self.monotonic_us() if database_us is None else database_us()


class ClockWatch:
    """Detects jumps of the wall clock. Not thread-safe: only maintenance uses it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_us = self._look()

    def jump_seconds(self) -> float:
        """By how many seconds the wall clock jumped since the last call; 0.0 if it did not."""
        before, self._ahead_us = self._ahead_us, self._look()
        seconds = (self._ahead_us - before) / MICROSECONDS
        return seconds if abs(seconds) >= CLOCK_JUMP_SECONDS else 0.0

    def _look(self) -> int:
        return self._clock.now_us() - self._clock.monotonic_us()

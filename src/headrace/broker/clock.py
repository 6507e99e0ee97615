"""Time, as something that can be handed in. Waiting uses the system's monotonic clock directly.

Three kinds of it, for what each is good for:

    now_us       the time of day: when messages were written, and how old they are. It may jump, ahead or back.
    session_us   what sessions of members are measured by, whatever happens to the time of day. One server goes by its
                 monotonic clock; servers that share a database go by the database's, since they have to agree.
    ClockWatch   compares the time of day with the monotonic clock, and so notices a jump.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from headrace.core.limits import CLOCK_JUMP_SECONDS, MICROSECONDS

DatabaseTime = Callable[[], int]


class Clock(Protocol):
    """Tells the time."""

    def now_us(self) -> int: ...

    def monotonic_us(self) -> int: ...

    def session_us(self, database_us: DatabaseTime | None) -> int: ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Microseconds since some moment; nobody can set this clock."""
        return time.monotonic_ns() // 1000

    def session_us(self, database_us: DatabaseTime | None) -> int:
        """What sessions are measured by: the time of the database that servers share, if there is one."""
        return self.monotonic_us() if database_us is None else database_us()


class ClockWatch:
    """Notices that the time of day was set. Not safe for threads: maintenance looks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_us = self._look()

    def jump_seconds(self) -> float:
        """By how many seconds the time of day jumped since this was last asked; 0.0 if it did not."""
        before, self._ahead_us = self._ahead_us, self._look()
        seconds = (self._ahead_us - before) / MICROSECONDS
        return seconds if abs(seconds) >= CLOCK_JUMP_SECONDS else 0.0

    def _look(self) -> int:
        return self._clock.now_us() - self._clock.monotonic_us()

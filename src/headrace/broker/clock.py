"""Clocks that can be injected. Waiting uses the system's monotonic clock directly.

now_us         the wall clock: when messages were written, and how old they are. It may jump, ahead or back. Servers
               that share a database use the database's clock, because they have to agree (`DatabaseClock`).
monotonic_us   for sessions of members, independent of the time of day: a member is heard by one server.
ClockWatch     compares the time of day with the monotonic clock, and so notices a jump.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from headrace.core.limits import CLOCK_COMPARE_SECONDS_MAX, CLOCK_JUMP_SECONDS, MICROSECONDS

DatabaseTime = Callable[[], int]


class Clock(Protocol):
    """A clock."""

    def now_us(self) -> int: ...

    def monotonic_us(self) -> int: ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Microseconds of the monotonic clock."""
        return time.monotonic_ns() // 1000


class DatabaseClock:
    """The clock of the database that servers share: this server's monotonic clock, set by the database's.

    So a commit needs no round trip to learn the time, and the time of day of this server does not matter. Between two
    comparisons, and while the database does not answer, the monotonic clock goes on alone. Thread-safe.
    """

    def __init__(self, clock: Clock, database_us: DatabaseTime) -> None:
        self._clock = clock
        self._database_us = database_us
        self._ahead_us, _ = self._look()

    def now_us(self) -> int:
        """Microseconds since 1970, UTC, as the database has them."""
        return self._clock.monotonic_us() + self._ahead_us

    def monotonic_us(self) -> int:
        """Microseconds of this server's monotonic clock."""
        return self._clock.monotonic_us()

    def compare(self) -> None:
        """Ask the database for the time; an answer that took long is ignored, since it may be that old."""
        ahead_us, took_us = self._look()
        if took_us <= CLOCK_COMPARE_SECONDS_MAX * MICROSECONDS:
            self._ahead_us = ahead_us

    def _look(self) -> tuple[int, int]:
        """By how much the database is ahead of the monotonic clock, and how long the answer took."""
        began_us = self._clock.monotonic_us()
        database_us = self._database_us()
        took_us = self._clock.monotonic_us() - began_us
        return database_us - began_us - took_us // 2, took_us


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

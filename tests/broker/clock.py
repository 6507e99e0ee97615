"""A clock that stands still until a test moves it."""

from __future__ import annotations

from headrace.core.limits import MICROSECONDS

START_US = 1_700_000_000 * MICROSECONDS


class SettableClock:
    """The time of day as the test has it."""

    def __init__(self, now_us: int = START_US) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def step(self, seconds: float) -> None:
        """Let time pass."""
        self._now_us += round(seconds * MICROSECONDS)

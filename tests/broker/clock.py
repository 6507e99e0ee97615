"""A clock that stands still until a test moves it."""

from __future__ import annotations

from headrace.core.limits import MICROSECONDS

START_US = 1_700_000_000 * MICROSECONDS


class SettableClock:
    """The time as the test has it: of day, and the monotonic one, by which sessions go on every engine."""

    def __init__(self, now_us: int = START_US) -> None:
        self._now_us = now_us
        self._monotonic_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def monotonic_us(self) -> int:
        return self._monotonic_us

    def step(self, seconds: float) -> None:
        """Let time pass; the time of day may go back."""
        self._now_us += round(seconds * MICROSECONDS)
        self._monotonic_us += max(0, round(seconds * MICROSECONDS))

    def jump(self, seconds: float) -> None:
        """Set the time of day, while no time passes."""
        self._now_us += round(seconds * MICROSECONDS)

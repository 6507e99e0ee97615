"""The end of waiting: a server that stops lets long polls and subscriptions go at once, with what they have.

Everything here runs on the event loop. Whoever awaits an event that may be long in coming does so inside `waking`, and
looks at `has_begun` before waiting again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Draining:
    """Whether the server is stopping, and who is to be told."""

    def __init__(self) -> None:
        self.has_begun = False
        self._began_at = math.inf
        self._events: set[asyncio.Event] = set()
        self._told: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Wake everyone who waits; nobody should wait from now on."""
        if not self.has_begun:
            self._began_at = time.monotonic()
        self.has_begun = True
        for event in self._events:
            event.set()
        for tell in self._told:
            tell()

    def seconds_left(self, stop_seconds: float) -> float:
        """How long whoever is at work may still be waited for, of so many seconds since it began."""
        return max(0.0, min(stop_seconds, self._began_at + stop_seconds - time.monotonic()))

    def tell(self, function: Callable[[], None]) -> None:
        """Have a function called when the server begins to stop."""
        self._told.append(function)

    @contextmanager
    def waking(self, event: asyncio.Event) -> Iterator[None]:
        """Have an event set when the server begins to stop."""
        self._events.add(event)
        try:
            yield
        finally:
            self._events.discard(event)

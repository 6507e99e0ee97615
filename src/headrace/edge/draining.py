"""Draining: a stopping server ends long polls and subscriptions at once, with the messages they have.

Runs on the event loop. A waiter that may wait long does so inside `waking`, and checks `has_begun` before it waits
again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol


class Settable(Protocol):
    """What is woken by being set: an event, or what is like one."""

    def set(self) -> None: ...


class Draining:
    """Whether the server is stopping, and who is notified of it."""

    def __init__(self) -> None:
        self.has_begun = False
        self._began_at = math.inf
        self._events: set[Settable] = set()
        self._callbacks: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Wake all waiters; nobody may wait from now on."""
        if not self.has_begun:
            self._began_at = time.monotonic()
        self.has_begun = True
        for event in self._events:
            event.set()
        for callback in self._callbacks:
            callback()

    def seconds_left(self, stop_seconds: float) -> float:
        """How much remains of the given seconds since draining began."""
        return max(0.0, min(stop_seconds, self._began_at + stop_seconds - time.monotonic()))

    async def pause(self, seconds: float) -> None:
        """Wait for N seconds, or until the server begins to stop."""
        if seconds > 0 and not self.has_begun:
            event = asyncio.Event()
            with self.waking(event), suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()

    def on_begin(self, callback: Callable[[], None]) -> None:
        """Call a function when the server begins to stop."""
        self._callbacks.append(callback)

    def waking(self, event: Settable) -> _Waking:
        """Set an event when the server begins to stop, within a `with` statement."""
        return _Waking(self._events, event)


class _Waking:
    """An event that is in a set for a while. A class, since every waiting fetch uses it: a generator costs more."""

    __slots__ = ("_event", "_events")

    def __init__(self, events: set[Settable], event: Settable) -> None:
        self._events = events
        self._event = event

    def __enter__(self) -> None:
        self._events.add(self._event)

    def __exit__(self, *_: object) -> None:
        self._events.discard(self._event)

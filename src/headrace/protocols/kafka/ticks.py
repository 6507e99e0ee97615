"""One clock for all fetches that wait: those that are due at about the same time are woken together.

A timer for each would wake the server up for each. Here a deadline is moved to the end of its slot, an eighth of the
time waited at most, and one timer serves all that are in a slot: their answers leave together, the clients ask again
together, and an idle consumer costs little. Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

# Slots are this long, in seconds; a wait uses the longest that is at most an eighth of it.
_SLOTS: Final = (0.1, 0.05, 0.02, 0.01, 0.005)
_SHARE: Final = 8

Slot = tuple[float, int]


class Wait:
    """One wait: its event, and whether its time is over."""

    __slots__ = ("event", "is_over", "slot")

    def __init__(self, event: asyncio.Event, slot: Slot) -> None:
        self.event = event
        self.slot = slot
        self.is_over = False


class Ticks:
    """All waits that have a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._slots: dict[Slot, set[Wait]] = {}
        self._timers: dict[Slot, asyncio.TimerHandle] = {}

    def begin(self, event: asyncio.Event, seconds: float) -> Wait:
        """Set an event after about this time, unless the wait ends before."""
        length = next((each for each in _SLOTS if each <= seconds / _SHARE), _SLOTS[-1])
        slot = (length, math.ceil((self._loop.time() + seconds) / length))
        waits = self._slots.get(slot)
        if waits is None:
            waits = self._slots[slot] = set()
            self._timers[slot] = self._loop.call_at(slot[0] * slot[1], self._fire, slot)
        wait = Wait(event, slot)
        waits.add(wait)
        return wait

    def end(self, wait: Wait) -> None:
        """Forget a wait, whether its time is over or not."""
        waits = self._slots.get(wait.slot)
        if waits is None:
            return
        waits.discard(wait)
        if not waits:
            del self._slots[wait.slot]
            self._timers.pop(wait.slot).cancel()

    def _fire(self, slot: Slot) -> None:
        # A timer may be early by a part of a millisecond: it counts, not the time.
        del self._timers[slot]
        for wait in self._slots.pop(slot):
            wait.is_over = True
            wait.event.set()

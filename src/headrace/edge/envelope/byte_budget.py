"""A memory budget that callers share: taken before bytes are held, released when they are gone.

    budget = ByteBudget(512 << 20, wait_seconds=30.0, setting="limits.answers_bytes_max", share_max=256 << 20)
    await budget.take(size, principal.name)      waits for room; Overloaded if there is none for too long
    budget.give_back(size, principal.name)

One owner holds at most its share, so what one caller holds never leaves another without room; what is taken without an
owner has no share. Waiters are served in order, so small sizes cannot starve large ones, but an owner at its share
waits alone. A size above the share is possible for an owner that holds nothing. Runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from headrace.core.errors import Overloaded
from headrace.edge.envelope.allocator import Peak


class _Waiter(NamedTuple):
    turn: int
    size: int
    owner: str
    future: asyncio.Future[None]


class ByteBudget:
    """A budget in bytes; `setting` is the name of the setting that bounds it."""

    def __init__(self, bytes_max: int, wait_seconds: float, setting: str, share_max: int | None = None) -> None:
        self.setting = setting
        self.bytes_max = bytes_max
        self.share_max = bytes_max if share_max is None else share_max
        self.taken = 0
        self.peak = Peak()
        self._wait_seconds = wait_seconds
        self._held: dict[str, int] = {}
        # Who waits, by owner, in the order of their turns. Nobody has an empty line.
        self._lines: dict[str, deque[_Waiter]] = {}
        self._turns = count()

    async def take(self, size: int, owner: str = "") -> None:
        """Take a known size, waiting for it."""
        if self.try_take(size, owner):
            return
        waiter = _Waiter(next(self._turns), size, owner, asyncio.get_running_loop().create_future())
        self._lines.setdefault(owner, deque()).append(waiter)
        try:
            async with asyncio.timeout(self._wait_seconds):
                await waiter.future
        except BaseException as error:
            self._leave(waiter)
            if isinstance(error, TimeoutError):
                raise self._overloaded(self._wait_seconds) from None
            raise

    def _leave(self, waiter: _Waiter) -> None:
        if waiter.future.done() and not waiter.future.cancelled():
            # The budget was granted just when the wait timed out.
            self.give_back(waiter.size, waiter.owner)
            return
        self._remove(waiter)
        self._admit()

    def _remove(self, waiter: _Waiter) -> None:
        line = self._lines.get(waiter.owner, deque())
        if waiter in line:
            line.remove(waiter)
            if not line:
                del self._lines[waiter.owner]

    def add(self, size: int, owner: str = "") -> None:
        """Take budget for one more part of something of unknown size, of which a part is held: it does not wait."""
        if not self.try_take(size, owner):
            raise self._overloaded(0.0)

    def try_take(self, size: int, owner: str = "") -> bool:
        """Take budget if it is available and nobody waits for it but those at their share."""
        if self._first() is not None or not self._is_within_share(size, owner) or self.taken + size > self.bytes_max:
            return False
        self._hold(size, owner)
        return True

    def give_back(self, size: int, owner: str = "") -> None:
        """Release budget."""
        self._hold(-size, owner)
        self._admit()

    def _is_within_share(self, size: int, owner: str) -> bool:
        held = self._held.get(owner, 0)
        return not held or held + size <= self.share_max

    def _hold(self, size: int, owner: str) -> None:
        self.taken += size
        self.peak.see(self.taken)
        if owner:
            held = self._held.get(owner, 0) + size
            if held:
                self._held[owner] = held
            else:
                # An owner that holds nothing takes no memory.
                self._held.pop(owner, None)

    def _first(self) -> _Waiter | None:
        """Whose turn it is: the first of those who are not at their share."""
        heads = (line[0] for line in self._lines.values())
        return min((head for head in heads if self._is_within_share(head.size, head.owner)), default=None)

    def _admit(self) -> None:
        """Serve the line; one that is too large for now is not passed over."""
        while (waiter := self._first()) is not None and self.taken + waiter.size <= self.bytes_max:
            self._remove(waiter)
            # One that was cancelled has not left the line yet.
            if not waiter.future.done():
                self._hold(waiter.size, waiter.owner)
                waiter.future.set_result(None)

    def _overloaded(self, waited_seconds: float) -> Overloaded:
        return Overloaded(f"the memory budget for requests or answers ({self.setting})", self.bytes_max, waited_seconds)


@dataclass(slots=True)
class HeldBytes:
    """What one request holds of a budget."""

    budget: ByteBudget
    owner: str = ""
    bytes: int = 0

    async def take(self, size: int) -> None:
        """Wait for room for more."""
        await self.budget.take(size, self.owner)
        self.bytes += size

    def try_take(self, size: int, owner: str) -> bool:
        """Hold this for an owner, and nothing else, if there is room at once."""
        self.shrink()
        self.owner = owner
        self.bytes = size if self.budget.try_take(size, owner) else 0
        return self.bytes == size

    def shrink(self, size: int = 0) -> None:
        """Keep no more than this."""
        if size < self.bytes:
            self.budget.give_back(self.bytes - size, self.owner)
            self.bytes = size

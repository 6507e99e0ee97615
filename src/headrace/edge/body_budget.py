"""The memory budget for the bodies of all running requests: taken before a body is read, released after the answer.

A request that finds the budget used up waits without reading, so that TCP slows the sender down. Waiters are served in
order, so small bodies cannot starve large ones. Runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque

from headrace.core.errors import Overloaded


class BodyBudget:
    """A budget in bytes; `setting` is the name of the setting that bounds it."""

    def __init__(self, bytes_max: int, wait_seconds: float, setting: str = "rest.bodies_bytes_max") -> None:
        self._setting = setting
        self.bytes_max = bytes_max
        self.taken = 0
        self._wait_seconds = wait_seconds
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Take budget for a body of known size, waiting for it."""
        if self.try_take(size):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, future)
        self._line.append(entry)
        try:
            async with asyncio.timeout(self._wait_seconds):
                await future
        except BaseException as error:
            self._leave(entry)
            if isinstance(error, TimeoutError):
                raise self._overloaded(self._wait_seconds) from None
            raise

    def _leave(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        size, future = entry
        if future.done() and not future.cancelled():
            # The budget was granted just when the wait timed out.
            self.give_back(size)
            return
        if entry in self._line:
            self._line.remove(entry)
        self._admit()

    def add(self, size: int) -> None:
        """Take budget for one more part of a body of unknown size; a half-read body does not wait."""
        if not self.try_take(size):
            raise self._overloaded(0.0)

    def try_take(self, size: int) -> bool:
        """Take budget if it is available and nobody waits for it."""
        if self._line or self.taken + size > self.bytes_max:
            return False
        self.taken += size
        return True

    def give_back(self, size: int) -> None:
        """Release budget."""
        self.taken -= size
        self._admit()

    def _admit(self) -> None:
        while self._line and self.taken + self._line[0][0] <= self.bytes_max:
            size, future = self._line.popleft()
            if not future.done():
                self.taken += size
                future.set_result(None)

    def _overloaded(self, waited_seconds: float) -> Overloaded:
        return Overloaded(f"the memory budget for request bodies ({self._setting})", self.bytes_max, waited_seconds)

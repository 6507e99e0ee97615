"""Calls in a thread that outlive the task that awaits them.

A call in a thread cannot be cancelled. If the task that awaits a batch is cancelled, as by `asyncio.wait_for`, the
thread continues and may receive one; it is kept for the next caller, so nothing is lost. Calls are short, so that the
next one in the same thread does not wait for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

Result = TypeVar("Result")

CALL_SECONDS: Final = 0.5


class CancelShield(Generic[Result]):
    """Calls in one thread, one at a time. Used by one event loop."""

    def __init__(self, submit: Callable[[Callable[[], Result]], asyncio.Future[Result]]) -> None:
        self._submit = submit
        self._call: asyncio.Future[Result] | None = None

    async def run(self, function: Callable[[], Result]) -> Result:
        """The result of a call that was left alone before, else of this one. Each result is given once."""
        while True:
            if self._call is None:
                self._call = self._submit(function)
            call = self._call
            try:
                result = await asyncio.shield(call)
            except asyncio.CancelledError:
                raise
            except BaseException:
                self._drop(call)
                raise
            if self._drop(call):
                return result

    def _drop(self, call: asyncio.Future[Result]) -> bool:
        """Forget a call; false if another task has its result."""
        is_present = self._call is call
        if is_present:
            self._call = None
        return is_present

    async def end(self) -> None:
        """Wait for a call that was left alone; nobody wants its result any more."""
        # The task that runs it may drop it meanwhile.
        call = self._call
        if call is not None:
            await asyncio.wait([call])
            if not call.cancelled():
                # Looked at, so that asyncio does not report it as one that nobody looked at.
                call.exception()

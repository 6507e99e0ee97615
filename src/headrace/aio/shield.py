"""Taking what comes, by calls that outlive whoever awaits them.

A thread cannot be called back. If the task that awaits a batch is cancelled, as by `asyncio.wait_for`, the thread goes
on and may get one; it is kept, and is the answer to whoever asks next. So nothing is lost. Calls are short, so that
what comes behind them in the same thread does not wait for long.
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
        """Go on without a call; false if another task has got its result."""
        is_present = self._call is call
        if is_present:
            self._call = None
        return is_present

    async def end(self) -> None:
        """Wait for a call that was left alone; nobody wants its result any more."""
        if self._call is not None:
            await asyncio.wait([self._call])
            if not self._call.cancelled():
                # Looked at, so that asyncio does not report it as one that nobody looked at.
                self._call.exception()

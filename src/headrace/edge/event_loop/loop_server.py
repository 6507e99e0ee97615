"""A server on an event loop in a thread of its own: it is started, serves until it is told to stop, and ends in time.

Any thread may start and stop it; what serves belongs to the event loop. It owns neither broker nor store.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future
from contextlib import suppress
from typing import ClassVar, Self

import uvloop

logger = logging.getLogger(__name__)


class LoopServer(ABC):
    """A server of a protocol."""

    # The name of the protocol.
    protocol: ClassVar[str]
    # Set when it is to stop; made on the event loop.
    _stopping: asyncio.Event

    def __init__(self, stop_seconds: float) -> None:
        self._stop_seconds = stop_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @abstractmethod
    async def _serve(self, is_ready: Future[None]) -> None:
        """Listen, set `is_ready`, and serve until `_stopping` is set; answer what was accepted by then."""

    def start(self) -> None:
        """Listen; returns once clients can connect."""
        is_ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=[is_ready], name=f"headrace-{self.protocol}", daemon=True
        )
        self._thread.start()
        is_ready.result()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Answer what was accepted and stop; whether all of it ended in time."""
        if self._thread is None or self._loop is None:
            return True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join((self._stop_seconds if timeout_seconds is None else timeout_seconds) + 1.0)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, is_ready: Future[None]) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._begin(is_ready))
        except BaseException as error:
            if not is_ready.done():
                is_ready.set_exception(error)
            else:
                logger.exception("the %s server failed", self.protocol.capitalize())

    async def _begin(self, is_ready: Future[None]) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        await self._serve(is_ready)

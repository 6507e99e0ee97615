"""Wakes those who wait for messages on the event loop, without a thread per waiter.

All waiters of a topic share one watch: a commit costs the committing thread one call into the loop, however many wait,
and none if the previous call is still pending. The loop then sets the event of each waiter. A stopping server sets them
too. Everything but the watch itself runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

from litestar import Request
from litestar.types import Receive

from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import Closed
from headrace.edge.access import Lease, Leases, Principal
from headrace.edge.draining import Draining

T = TypeVar("T")


class _Shared:
    """One topic's watch, and the events of all who share it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.events: set[asyncio.Event] = set()
        self.watch = ExitStack()
        self._loop = loop
        self._is_called = False

    def wake(self) -> None:
        """Called in the thread that committed."""
        if not self._is_called:
            self._is_called = True
            # The loop may be closed when the last topics end.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._spread)

    def _spread(self) -> None:
        # Cleared before the events are set: later commits call again.
        self._is_called = False
        for event in self.events:
            event.set()


class LoopWakeups:
    """All waiters on one event loop."""

    def __init__(self, draining: Draining) -> None:
        self.draining = draining
        self._shared: dict[int, _Shared] = {}

    @contextmanager
    def on(self, reader: TopicReader) -> Iterator[asyncio.Event]:
        """An event that is set when the topic gets messages, and when the server begins to stop."""
        shared = self._shared.get(reader.topic_id)
        if shared is None:
            shared = self._shared[reader.topic_id] = _Shared(asyncio.get_running_loop())
            shared.watch.enter_context(reader.watching(shared.wake))
        event = asyncio.Event()
        shared.events.add(event)
        try:
            with self.draining.waking(event):
                yield event
        finally:
            shared.events.remove(event)
            if not shared.events:
                del self._shared[reader.topic_id]
                shared.watch.close()


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Whether an event is set in time."""
    if not event.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
    return event.is_set()


async def attend(
    request: Request[Any, Any, Any], work: Coroutine[Any, Any, T], principal: Principal, lease: Lease, leases: Leases
) -> T:
    """Do work as long as its client is there, and may be: one that left holds nothing. Counts as a long poll."""
    try:
        with principal.stream():
            return await _attend(request, work, lease, leases)
    finally:
        # If it was never begun, Python would complain.
        work.close()


async def _attend(request: Request[Any, Any, Any], work: Coroutine[Any, Any, T], lease: Lease, leases: Leases) -> T:
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(left(request.receive))
    ending = asyncio.create_task(leases.ended(lease))
    tasks = (working, leaving, ending)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            ending.result()
        if working.done():
            # Messages that arrived just when the lease ended are not delivered.
            lease.check()
            return working.result()
        raise Closed("the connection")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def left(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass

"""Waits for messages on the event loop, without a thread per waiter.

All waiters of a partition, or of a whole topic, share one watch: a commit costs the committing thread one call into the
loop, however many wait, and none if the previous call is still pending. The loop then sets the event of each waiter. A
stopping server sets them too. Everything but the watch itself runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.broker.read.topic_reader import TopicReader
from headrace.broker.read.wakeups import ALL_PARTITIONS, Wakeups
from headrace.edge.bridge import Bridge
from headrace.edge.draining import Settable

T = TypeVar("T")
# What waiters share: the watches of an open topic, not its id, which it keeps if it is opened again; and a partition.
Key = tuple[Wakeups, int]


@dataclass(frozen=True, slots=True)
class LongPoll(Generic[T]):
    """What to wait for.

    look: reads what is available; it may block, and runs in a thread.
    is_enough: whether a result is worth an answer.
    may_find_more: whether another look may find more; must not block.
    renew_seconds: look again after this time in any case.
    """

    look: Callable[[], T]
    is_enough: Callable[[T], bool]
    may_find_more: Callable[[T], bool]
    renew_seconds: Callable[[T], float] | None = None


class _Shared:
    """One topic's watch, and the events of all who share it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.events: set[Settable] = set()
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

    def __init__(self, bridge: Bridge) -> None:
        self.draining = bridge.draining
        self._bridge = bridge
        self._shared: dict[Key, _Shared] = {}

    @contextmanager
    def on(self, reader: TopicReader, partition: int = ALL_PARTITIONS) -> Iterator[asyncio.Event]:
        """An event that is set when the partition gets messages, and when the server begins to stop."""
        event = asyncio.Event()
        with self.setting(event, reader, partition):
            yield event

    @contextmanager
    def setting(self, event: asyncio.Event, reader: TopicReader, partition: int = ALL_PARTITIONS) -> Iterator[None]:
        """The same for an event that others may set too."""
        key = self.watch(event, reader, partition)
        try:
            with self.draining.waking(event):
                yield
        finally:
            self.unwatch(event, key)

    def watch(self, event: Settable, reader: TopicReader, partition: int = ALL_PARTITIONS) -> Key:
        """Have an event (or the like) set when the partition gets messages, until what this returns is given back."""
        key = (reader.watches, partition)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _Shared(asyncio.get_running_loop())
            shared.watch.enter_context(reader.watching(shared.wake, partition))
        shared.events.add(event)
        return key

    def unwatch(self, event: Settable, key: Key) -> None:
        """Give back what `watch` returned."""
        shared = self._shared[key]
        shared.events.remove(event)
        if not shared.events:
            del self._shared[key]
            shared.watch.close()

    async def poll(
        self, poll: LongPoll[T], reader: TopicReader, wait_seconds: float, partition: int = ALL_PARTITIONS
    ) -> T:
        """Look, again whenever more may be found, until it is enough, the time is over or the server stops."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        with self.on(reader, partition) as event:
            while True:
                event.clear()
                found = await self._bridge.call(poll.look)
                if poll.is_enough(found) or self.draining.has_begun or loop.time() >= deadline:
                    return found
                until = deadline
                if poll.renew_seconds is not None:
                    until = min(deadline, loop.time() + poll.renew_seconds(found))
                while await wait(event, until - loop.time()) and not self.draining.has_begun:
                    event.clear()
                    if poll.may_find_more(found):
                        break


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event; whether it is set in time."""
    if not event.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
    return event.is_set()

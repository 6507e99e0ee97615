"""Wakes the waiters of a partition, and only those.

A watch is a function that is called, in the committing thread, whenever one of its partitions gets messages. It must
return at once: set an event, or call into an event loop. Waiting threads and event loops use the same watches. A feed
is a watch that is handed what was written (`feed`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from headrace.broker.read.feed import WrittenCommit

logger = logging.getLogger(__name__)

Wake = Callable[[], None]
Result = TypeVar("Result")

# A watch for every partition, including those added later.
ALL_PARTITIONS = -1


class Fed(Protocol):
    """What is handed each commit: a feed, or who passes them on to several."""

    def put(self, written: WrittenCommit | None) -> None:
        """This was committed; must not block."""


class Wakeups:
    """The watches of one topic. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_partition: dict[int, list[Wake]] = {}
        # Replaced, never changed.
        self._feeds: tuple[Fed, ...] = ()

    def __len__(self) -> int:
        with self._lock:
            return len(self._feeds) + sum(len(wakes) for wakes in self._by_partition.values())

    def add(self, partition: int, wake: Wake) -> None:
        """Call `wake` when the partition gets messages, until it is removed."""
        with self._lock:
            self._by_partition.setdefault(partition, []).append(wake)

    def remove(self, partition: int, wake: Wake) -> None:
        """Remove a watch."""
        with self._lock:
            wakes = self._by_partition[partition]
            wakes.remove(wake)
            if not wakes:
                del self._by_partition[partition]

    @property
    def has_feeds(self) -> bool:
        """Whether anyone is handed what is written."""
        return bool(self._feeds)

    @contextmanager
    def feeding(self, feed: Fed) -> Iterator[None]:
        """Hand a feed whatever is written."""
        with self._lock:
            self._feeds = (*self._feeds, feed)
        try:
            yield
        finally:
            with self._lock:
                self._feeds = tuple(each for each in self._feeds if each is not feed)

    @contextmanager
    def watching(self, partition: int) -> Iterator[threading.Event]:
        """An event that is set when the partition gets messages."""
        event = threading.Event()
        with self.calling(partition, event.set):
            yield event

    @contextmanager
    def calling(self, partition: int, wake: Wake) -> Iterator[None]:
        """Call a function whenever the partition gets messages."""
        self.add(partition, wake)
        try:
            yield
        finally:
            self.remove(partition, wake)

    def wait_until(
        self, is_enough: Callable[[Result], bool], look: Callable[[], Result], partition: int, wait_seconds: float
    ) -> Result:
        """Look, again whenever the partition gets messages, until the result is enough or the time is over."""
        deadline = time.monotonic() + wait_seconds
        with self.watching(partition) as event:
            while True:
                event.clear()
                result, left = look(), deadline - time.monotonic()
                if is_enough(result) or left <= 0 or not event.wait(left):
                    return result

    def wake(self, partitions: Sequence[int], written: WrittenCommit | None = None) -> None:
        """Wake the watches of these partitions, which got messages: what was written, if it can be handed over."""
        if not partitions:
            return
        for feed in self._feeds:
            feed.put(written)
        if not self._by_partition:
            return
        with self._lock:
            called = [wake for partition in partitions for wake in self._by_partition.get(partition, ())]
            called += self._by_partition.get(ALL_PARTITIONS, ())
        _call(called)

    def wake_all(self) -> None:
        """Wake all watches: new partitions, another generation, the end of the topic."""
        for feed in self._feeds:
            feed.put(None)
        with self._lock:
            called = [wake for wakes in self._by_partition.values() for wake in wakes]
        _call(called)


def _call(wakes: Iterable[Wake]) -> None:
    """Call the watches; if one fails, perhaps because its event loop is closed, the publish must not fail."""
    for wake in wakes:
        try:
            wake()
        except Exception:
            logger.exception("a watch failed")

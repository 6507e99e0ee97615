"""Waking those who wait for messages, and only those.

A watch is a function that is called, in the thread that committed, whenever something came for one of its
partitions. It must return at once: set an event, or hand over to an event loop. Threads that wait and event loops
that await are built on the same watches.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

logger = logging.getLogger(__name__)

Wake = Callable[[], None]

# A watch for every partition, those that are yet to be added included.
ALL_PARTITIONS = -1


class Wakeups:
    """The watches of one topic. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_partition: dict[int, list[Wake]] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum(len(wakes) for wakes in self._by_partition.values())

    def add(self, partition: int, wake: Wake) -> None:
        """Call `wake` when something comes for the partition, until it is removed."""
        with self._lock:
            self._by_partition.setdefault(partition, []).append(wake)

    def remove(self, partition: int, wake: Wake) -> None:
        """Call it no more."""
        with self._lock:
            wakes = self._by_partition[partition]
            wakes.remove(wake)
            if not wakes:
                del self._by_partition[partition]

    @contextmanager
    def watching(self, partition: int) -> Iterator[threading.Event]:
        """An event that is set when something comes for the partition."""
        event = threading.Event()
        self.add(partition, event.set)
        try:
            yield event
        finally:
            self.remove(partition, event.set)

    def wake(self, partitions: Sequence[int]) -> None:
        """Something came for these partitions."""
        if not self._by_partition or not partitions:
            return
        with self._lock:
            called = [wake for partition in partitions for wake in self._by_partition.get(partition, ())]
            called += self._by_partition.get(ALL_PARTITIONS, ())
        _call(called)

    def wake_all(self) -> None:
        """Something changed that concerns everyone: new partitions, another generation, the end of the topic."""
        with self._lock:
            called = [wake for wakes in self._by_partition.values() for wake in wakes]
        _call(called)


def _call(wakes: Iterable[Wake]) -> None:
    """Call them all; one that fails, for its event loop may be gone, must not be taken for a failure to publish."""
    for wake in wakes:
        try:
            wake()
        except Exception:
            logger.exception("a watch failed")

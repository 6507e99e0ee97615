"""What a fetch waits for: its topics, and which of them may have news.

A fetch looks at a topic once, and again when the topic gets messages: however many topics it has, a commit to one of
them costs a look at one. A session keeps its watch from request to request; if its client has stopped asking, the watch
ends some seconds later, because a shared store is polled for whoever watches. Very many topics are looked at in slices,
between which others have their turn. Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from headrace.edge.event_loop.long_poll import Key, LoopWakeups
from headrace.protocols.kafka.apis.records.fetch_topic import FetchTopic

# How long a watch is kept for the next request.
KEPT_SECONDS: Final = 5.0
# Retention moves the starts of partitions without a word: after this time all topics are looked at again.
LOOK_SECONDS: Final = 60.0
# Topics between two turns of others: about a millisecond's worth.
_SLICE: Final = 100


class _TopicNews:
    """Set when one topic may have news."""

    __slots__ = ("_topic", "_watch")

    def __init__(self, watch: FetchWatch, topic: FetchTopic) -> None:
        self._watch = watch
        self._topic = topic

    def set(self) -> None:
        """Look at the topic again."""
        self._watch.changed[self._topic] = None
        self._watch.event.set()


class FetchWatch:
    """The topics of a fetch; `event` is set when one of them is in `changed`, and by whatever else ends its wait."""

    def __init__(self, wakeups: LoopWakeups) -> None:
        self.event = asyncio.Event()
        # A set in the order of the request.
        self.changed: dict[FetchTopic, None] = {}
        self._wakeups = wakeups
        self._watched: dict[FetchTopic, tuple[_TopicNews, Key]] = {}

    async def add(self, topics: Iterable[FetchTopic]) -> None:
        """Look at topics, and again whenever they get messages."""
        for place, topic in enumerate(topics, 1):
            self.changed[topic] = None
            if topic.reader is not None:
                news = _TopicNews(self, topic)
                self._watched[topic] = news, self._wakeups.watch(news, topic.reader)
            if not place % _SLICE:
                await asyncio.sleep(0)

    def drop(self, topic: FetchTopic) -> None:
        """Look at a topic no more."""
        self.changed.pop(topic, None)
        if topic in self._watched:
            self._wakeups.unwatch(*self._watched.pop(topic))

    def broken(self) -> list[FetchTopic]:
        """Topics that could not be read when they were looked at last."""
        return [topic for topic in self.changed if topic.error is not None]

    async def find_messages(self) -> bool:
        """Whether reading could give anything; topics without any news are not looked at again before they change."""
        for place, topic in enumerate(list(self.changed), 1):
            if topic.has_messages():
                return True
            if not topic.has_moved():
                self.changed.pop(topic, None)
            if not place % _SLICE:
                await asyncio.sleep(0)
        return False

    def close(self) -> None:
        """Watch nothing any more; idempotent."""
        for _ in range(min(len(self._watched), _SLICE)):
            _, watched = self._watched.popitem()
            self._wakeups.unwatch(*watched)
        if self._watched:
            asyncio.get_running_loop().call_soon(self.close)


class SessionWatch(FetchWatch):
    """The watch of a session, which is kept for its next request."""

    def __init__(self, wakeups: LoopWakeups) -> None:
        super().__init__(wakeups)
        self.is_open = True
        self._loop = asyncio.get_running_loop()
        self._looked = self._loop.time()
        # When the last request ended. One timer looks at that, instead of one for each request.
        self._used = math.inf
        self._timer = self._loop.call_later(KEPT_SECONDS, self._look)
        self._stopping = ExitStack()
        self._stopping.enter_context(wakeups.draining.waking(self))

    def set(self) -> None:
        """The server stops: the broker may go on without it."""
        self._loop.call_soon(self.close)

    def use(self, topics: Iterable[FetchTopic]) -> None:
        """A request begins; once in a while it looks at all topics."""
        self._used = math.inf
        if self._loop.time() - self._looked >= LOOK_SECONDS:
            self._looked = self._loop.time()
            self.changed |= dict.fromkeys(topics)

    def keep(self) -> None:
        """A request has ended: wait for the next one."""
        self._used = self._loop.time()

    def _look(self) -> None:
        left = self._used + KEPT_SECONDS - self._loop.time()
        if left <= 0:
            self.close()
        else:
            self._timer = self._loop.call_later(min(left, KEPT_SECONDS), self._look)

    def close(self) -> None:
        """Watch nothing any more; idempotent."""
        self.is_open = False
        self._timer.cancel()
        self._stopping.close()
        super().close()

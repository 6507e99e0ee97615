"""Followers on an event loop are handed what is written, without a thread for each.

All followers of a topic share one place with the committing thread: a commit costs it one call into the loop, however
many follow, and none if the previous call is still pending. The loop hands the commit to the feed of each. Belongs to
the event loop, except `put`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from headrace.broker.read.feed import FEED_COMMITS_MAX, Feed, WrittenCommit
from headrace.broker.read.topic_reader import TopicReader
from headrace.broker.read.wakeups import Wakeups


class _SharedFeed:
    """The feeds of all followers of one topic."""

    def __init__(self) -> None:
        self.feeds: set[Feed] = set()
        self.attached = ExitStack()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._written: list[WrittenCommit | None] = []

    def put(self, written: WrittenCommit | None) -> None:
        """This was committed; called in the thread that did."""
        with self._lock:
            is_first = not self._written
            if len(self._written) >= FEED_COMMITS_MAX:
                # The loop is late: every follower looks at the log.
                self._written = [None]
            else:
                self._written.append(written)
        if is_first:
            # The loop may be closed when the last topics end.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._hand)

    def _hand(self) -> None:
        with self._lock:
            written, self._written = self._written, []
        for feed in self.feeds:
            for each in written:
                feed.put(each)


class LoopFeeds:
    """All followers on one event loop."""

    def __init__(self) -> None:
        # By the watches of an open topic.
        self._shared: dict[Wakeups, _SharedFeed] = {}

    @contextmanager
    def following(self, reader: TopicReader, wake: Callable[[], None]) -> Iterator[Feed]:
        """A feed that is handed what is written; `wake` is called on the event loop when there may be more."""
        key = reader.watches
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _SharedFeed()
            shared.attached.enter_context(reader.feeding(shared))
        feed = reader.feed(wake)
        shared.feeds.add(feed)
        try:
            yield feed
        finally:
            shared.feeds.discard(feed)
            if not shared.feeds:
                self._shared.pop(key, None)
                shared.attached.close()

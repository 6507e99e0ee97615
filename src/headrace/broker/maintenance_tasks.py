"""The tasks of maintenance: retention, and removing what has expired. Each counts its work.

A topic that fails, because of its disk or because it is being deleted, does not affect the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.broker.clock import Clock, ClockWatch
from headrace.broker.cluster.notifications import Notifications
from headrace.broker.cluster.servers import Servers
from headrace.broker.counters import Counters
from headrace.broker.maintenance import Task
from headrace.broker.queue_api.registrations import Registrations
from headrace.broker.settings import BrokerSettings
from headrace.broker.topics.registry import OpenTopic, Topics
from headrace.core.errors import HeadraceError
from headrace.core.limits import (
    MICROSECONDS,
    ONE_TIME_WRITERS_MAX,
    PIPELINE_KEPT_SECONDS,
    PRODUCERS_MAX,
    SERVER_HEARTBEAT_SECONDS,
    STORE_WRITERS_MAX,
)
from headrace.core.publish.state import TopicState
from headrace.core.topics.retention import deletes
from headrace.storage.interface import Store

logger = logging.getLogger(__name__)


class MaintenanceTasks:
    """Periodic tasks for all topics of a store."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        registrations: Registrations,
        settings: BrokerSettings,
        clock: Clock,
        counters: Counters,
        servers: Servers,
    ) -> None:
        self._registrations = registrations
        self._store = store
        self._topics = topics
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._clock_watch = ClockWatch(clock)
        self._notifications = Notifications(topics)
        self._servers = servers
        # The servers that ran when members were last adopted.
        self._running: set[str] | None = None

    def tasks(self) -> dict[Task, float]:
        """All tasks with their intervals in seconds."""
        return {
            self.watch_clock: self._settings.clock_check_seconds,
            self.poll_waiting_topics: self._settings.neighbours_check_seconds,
            self.compare_topics: self._settings.topics_check_seconds,
            self.expire_members: self._settings.members_check_seconds,
            self.adopt_members: SERVER_HEARTBEAT_SECONDS,
            self.drop_outlived: self._settings.retention_check_seconds,
            self.seal_segments: self._settings.retention_check_seconds,
            self.clean_windows: self._settings.window_clean_seconds,
            self.expire_stages: self._settings.stages_check_seconds,
            self.forget_sources: self._settings.sources_check_seconds,
            self.forget_producers: self._settings.sources_check_seconds,
            self.forget_consumers: self._settings.sources_check_seconds,
            self.forget_pipelines: self._settings.sources_check_seconds,
        }

    def watch_clock(self) -> None:
        """Log a jump of the clock that dates messages, and decides what retention deletes."""
        seconds = self._clock_watch.jump_seconds()
        if seconds:
            direction = "ahead" if seconds > 0 else "back"
            logger.warning(
                "the %s clock jumped %.1f seconds %s. Message times never go back: until the clock has caught up, "
                "messages get the time of the last one written. Sessions of members are not affected",
                "system" if self._store.signals is None else "database's",
                abs(seconds),
                direction,
            )
            self._count("clock_jumps", 1)

    def expire_members(self) -> None:
        """Remove members whose session ended, and what others did not let go in time."""
        self._for_each(lambda opened: self._count("members_expired", opened.groups.expire()))

    def adopt_members(self) -> None:
        """Once a server of a shared store is gone, give its members a session to appear at another."""
        if self._store.signals is None or self._running == (running := self._servers.running()):
            return
        for topic_id, group in self._store.catalog.groups_with_members():
            opened = self._topics.find_id(topic_id)
            if opened is not None:
                opened.groups.adopt([group], running)
        self._running = running

    def poll_waiting_topics(self) -> None:
        """Poll for messages of other servers, in case a notification was lost."""
        if self._store.signals is not None:
            self._notifications.poll_waiting_topics()

    def compare_topics(self) -> None:
        """Poll for topics that other servers created, changed or deleted, in case a notification was lost."""
        if self._store.signals is not None:
            self._notifications.compare_topics()

    def forget_consumers(self) -> None:
        """Delete consumers of the queue API that were idle too long."""
        self._count("queue_consumers_forgotten", self._registrations.forget_idle())

    def forget_producers(self) -> None:
        """Forget the producers opened first, above the limit, and writers of transactions that wrote longest ago.

        Only a shared store has stored its producers.
        """
        forgotten = self._store.catalog.commits.forget_writers(STORE_WRITERS_MAX, ONE_TIME_WRITERS_MAX)
        self._count("writers_forgotten", forgotten)
        if self._store.signals is not None:
            self._count("producers_forgotten", self._store.catalog.forget_producers(PRODUCERS_MAX))

    def forget_pipelines(self) -> None:
        """Forget pipelines that have not reported for long."""
        silent_since_us = self._clock.now_us() - PIPELINE_KEPT_SECONDS * MICROSECONDS
        self._count("pipelines_forgotten", self._store.catalog.pipelines.forget(silent_since_us))

    def drop_outlived(self) -> None:
        """Delete messages past retention that no important group holds, and those that were deleted on request."""
        self._for_each(self._drop_outlived)

    def _drop_outlived(self, opened: OpenTopic) -> None:
        if deletes(opened.record.settings) or opened.record.deleted_before:
            self._count("segments_dropped", opened.groups.drop_outlived(self._clock.now_us()))

    def seal_segments(self) -> None:
        """Write the indexes of complete segments that could not be written earlier."""
        self._for_each(self._seal_segments)

    def _seal_segments(self, opened: OpenTopic) -> None:
        with opened.topic.using() as log:
            self._count("segments_sealed", log.seal())

    def clean_windows(self) -> None:
        """Remove payloads from the window after their time."""
        self._for_each(self._clean_window)
        self._count("window_cleanings", 1)

    def _clean_window(self, opened: OpenTopic) -> None:
        now_us = self._clock.now_us()
        after_us = now_us - opened.record.settings.deduplication_window_seconds * MICROSECONDS

        def clean(state: TopicState) -> int:
            state.window.date_back(now_us)
            return state.window.clean(after_us)

        state = opened.topic.log.peek()
        if state is not None and len(state.window):
            self._count("payloads_cleaned", opened.topic.between_commits(clean))

    def expire_stages(self) -> None:
        """Drop expired stages."""
        idle_since_us = self._clock.now_us() - int(self._settings.stage_idle_seconds * MICROSECONDS)
        self._count("stages_expired", self._store.stages.expire(idle_since_us))

    def forget_sources(self) -> None:
        """Expire links, and forget the sources that are idle longest, above the limit."""
        self._for_each(self._forget_sources)

    def _forget_sources(self, opened: OpenTopic) -> None:
        if opened.topic.log.peek() is None:
            return
        now_us = self._clock.now_us()

        def forget(state: TopicState) -> tuple[int, int]:
            return state.sources.expire_links(now_us), state.sources.forget_idle(self._settings.sources_max)

        links, sources = opened.topic.between_commits(forget)
        self._count("links_expired", links)
        self._count("sources_forgotten", sources)

    def _for_each(self, chore: Callable[[OpenTopic], None]) -> None:
        for opened in self._topics.all():
            self._attempt(opened, chore)

    def _attempt(self, opened: OpenTopic, chore: Callable[[OpenTopic], None]) -> None:
        try:
            chore(opened)
        except (HeadraceError, OSError) as error:
            if not self._notifications.was_deleted(opened, error):
                logger.exception("maintenance of topic %r failed", opened.record.name)

    def _count(self, name: str, count: int) -> None:
        self._counters.add(name, count)

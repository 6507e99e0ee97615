"""The chores of upkeep: retention, and forgetting what has expired. Each counts what it did."""

from __future__ import annotations

from headrace.broker.clock import Clock
from headrace.broker.counters import Counters
from headrace.broker.settings import BrokerSettings
from headrace.broker.topics import Topics
from headrace.broker.upkeep import Task
from headrace.core.limits import MICROSECONDS
from headrace.core.planning import TopicState
from headrace.storage.engine import Store


class Chores:
    """What is done for all topics of a store now and then."""

    def __init__(
        self, store: Store, topics: Topics, settings: BrokerSettings, clock: Clock, counters: Counters
    ) -> None:
        self._store = store
        self._topics = topics
        self._settings = settings
        self._clock = clock
        self._counters = counters

    def tasks(self) -> dict[Task, float]:
        """Every chore with its interval in seconds."""
        return {
            self.expire_members: self._settings.members_check_seconds,
            self.drop_outlived: self._settings.retention_check_seconds,
            self.seal_segments: self._settings.retention_check_seconds,
            self.clean_windows: self._settings.window_clean_seconds,
            self.expire_stages: self._settings.stages_check_seconds,
            self.forget_sources: self._settings.sources_check_seconds,
        }

    def expire_members(self) -> None:
        """Take out the members whose session ran out."""
        for opened in self._topics.all():
            self._counters.add("members_expired", opened.groups.expire(self._clock.now_us()))

    def drop_outlived(self) -> None:
        """Drop what is past retention and not held by an important group."""
        for opened in self._topics.all():
            settings = opened.topic.record.settings
            if settings.retention_seconds is not None or settings.retention_bytes is not None:
                dropped = opened.topic.log.drop_outlived(settings, opened.groups.held(), self._clock.now_us())
                self._counters.add("segments_dropped", dropped)

    def seal_segments(self) -> None:
        """Write the index of complete segments that could not be written when they were completed."""
        for opened in self._topics.all():
            self._counters.add("segments_sealed", opened.topic.log.seal())

    def clean_windows(self) -> None:
        """Forget the payloads whose time in the window is over."""
        for opened in self._topics.all():
            window_us = opened.topic.record.settings.deduplication_window_seconds * MICROSECONDS
            after_us = self._clock.now_us() - window_us

            def clean(state: TopicState, after_us: int = after_us) -> int:
                return state.window.clean(after_us)

            if len(opened.topic.log.state.window):
                self._counters.add("payloads_cleaned", opened.topic.between_commits(clean))
        self._counters.add("window_cleanings")

    def expire_stages(self) -> None:
        """Drop the stages that nobody added to or published in time."""
        idle_since_us = self._clock.now_us() - int(self._settings.stage_idle_seconds * MICROSECONDS)
        self._counters.add("stages_expired", self._store.stages.expire(idle_since_us))

    def forget_sources(self) -> None:
        """Expire links, and above the limit forget the sources that are idle longest."""
        now_us = self._clock.now_us()

        def expire_links(state: TopicState) -> int:
            return state.sources.expire_links(now_us)

        def forget_idle(state: TopicState) -> int:
            return state.sources.forget_idle(self._settings.sources_max)

        for opened in self._topics.all():
            self._counters.add("links_expired", opened.topic.between_commits(expire_links))
            self._counters.add("sources_forgotten", opened.topic.between_commits(forget_idle))

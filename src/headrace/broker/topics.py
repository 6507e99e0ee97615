"""The topics of a store: made, found, changed, deleted.

Finding takes no lock: the dictionary is replaced, never changed. Making, changing and deleting are ordered by one
lock. A topic whose files cannot be opened is listed all the same, and every use of it says what is wrong.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.broker.clock import Clock
from headrace.broker.counters import Counters
from headrace.broker.groups import Groups
from headrace.broker.settings import BrokerSettings
from headrace.broker.topic import Topic
from headrace.core.errors import (
    Closed,
    HeadraceError,
    InvalidInput,
    PartitionsCannotShrink,
    SettingsConflict,
    StorageError,
    StoreUnavailable,
    TopicDeleted,
    TopicNotFound,
    again,
)
from headrace.core.limits import PARTITIONS_MAX, TOPICS_MAX
from headrace.core.names import check_topic_name, topic_key
from headrace.core.settings import TopicSettings
from headrace.core.window import PayloadWindow
from headrace.storage.catalog import TopicRecord
from headrace.storage.engine import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenTopic:
    """A topic at work with its groups."""

    topic: Topic
    groups: Groups

    @property
    def record(self) -> TopicRecord:
        """The topic as the catalog has it."""
        return self.topic.record

    def end(self, reason: HeadraceError) -> None:
        """Finish what was accepted, wake all who wait, and let go of the files."""
        self.topic.end(reason)
        self.groups.settle()
        self.topic.log.close()


@dataclass(frozen=True, slots=True)
class BrokenTopic:
    """A topic that is in the catalog and could not be opened."""

    record: TopicRecord
    error: HeadraceError


class Topics:
    """All topics of a store. Safe for threads."""

    def __init__(self, store: Store, settings: BrokerSettings, clock: Clock, counters: Counters) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._lock = threading.Lock()
        self._store_window_lock = threading.Lock()
        self._closed = False
        self._topics: dict[str, OpenTopic | BrokenTopic] = {}
        for record in store.catalog.topics():
            self._topics[record.key] = self._open(record)

    def find(self, name: str) -> OpenTopic:
        """A topic by its name, whatever the case."""
        self._check_open()
        # A name that is its own key, as most are, need not be folded.
        found = self._topics.get(name) if isinstance(name, str) else None
        found = found or self._topics.get(topic_key(check_topic_name(name)))
        if found is None:
            raise TopicNotFound(name)
        if isinstance(found, BrokenTopic):
            raise again(found.error)
        return found

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the broker")

    def all(self) -> list[OpenTopic]:
        """The topics at work, in the order they were made."""
        return [topic for topic in list(self._topics.values()) if isinstance(topic, OpenTopic)]

    def failing(self) -> dict[str, str]:
        """The topics that take no messages, and why."""
        reasons: dict[str, str] = {}
        for topic in list(self._topics.values()):
            if isinstance(topic, BrokenTopic):
                reasons[topic.record.name] = str(topic.error)
            elif topic.topic.log.failure is not None:
                reasons[topic.topic.record.name] = topic.topic.log.failure
        return reasons

    def records(self) -> list[TopicRecord]:
        """All topics, those that could not be opened included."""
        self._check_open()
        return [topic.record for topic in self._topics.values()]

    def create(self, name: str, partitions: int | None, settings: dict[str, Any]) -> OpenTopic:
        """Make a topic; one that is there gets more partitions if so many are asked for."""
        name = check_topic_name(name)
        wanted = TopicSettings.make(**settings)
        with self._lock:
            if topic_key(name) in self._topics:
                self._open_again(topic_key(name))
                found = self.find(name)
                self._check_same(found.record, wanted, settings)
                self._store_change(found, _grown(found.record, partitions))
                return found
            self._check_open()
            if len(self._topics) >= TOPICS_MAX:
                raise InvalidInput("topics", str(len(self._topics)), f"a store holds at most {TOPICS_MAX} topics")
            count = check_partitions(1 if partitions is None else partitions)
            now_us = self._clock.now_us()
            record = self._store.catalog.add_topic(
                name, topic_key(name), count, wanted, now_us, lambda made: self._store.create_log(made, now_us)
            )
            self._topics = {**self._topics, record.key: self._open(record)}
            return self.find(name)

    def alter(self, name: str, partitions: int | None, settings: dict[str, Any]) -> OpenTopic:
        """Change settings, or add partitions."""
        with self._lock:
            found = self.find(name)
            record = _grown(found.record, partitions)
            self._store_change(found, replace(record, settings=record.settings.change(**settings)))
            return found

    def delete(self, name: str) -> None:
        """Remove a topic, free its disk, and end all who wait on it."""
        key = topic_key(check_topic_name(name))
        with self._lock:
            self._check_open()
            doomed = self._topics.get(key)
            if doomed is None:
                raise TopicNotFound(name)
            record, reason = doomed.record, TopicDeleted(doomed.record.name)
            # Listed until it is out of the catalog: if that fails, deleting can be tried again.
            self._topics = {**self._topics, key: BrokenTopic(record, reason)}
            if isinstance(doomed, OpenTopic):
                doomed.end(reason)
            self._store.catalog.remove_topic(record.id)
            self._topics = {other: topic for other, topic in self._topics.items() if other != key}
            self._store.delete_log(record.id)

    def close(self) -> None:
        """End all topics; what was accepted is finished."""
        with self._lock:
            self._closed = True
            for opened in self.all():
                opened.end(Closed("the broker"))

    def _open(self, record: TopicRecord) -> OpenTopic | BrokenTopic:
        try:
            return OpenTopic(*self._parts(record))
        except StorageError as error:
            logger.error("topic %r cannot be opened: %s", record.name, error)
            return BrokenTopic(record, error)

    def _open_again(self, key: str) -> None:
        """Who creates a topic until it works must get it, even if it was made before and could not be opened then."""
        broken = self._topics[key]
        if isinstance(broken, BrokenTopic) and isinstance(broken.error, StoreUnavailable):
            self._topics = {**self._topics, key: self._open(broken.record)}

    def _parts(self, record: TopicRecord) -> tuple[Topic, Groups]:
        log = self._store.open_log(record, self._clock.now_us())
        topic = Topic(
            record,
            log,
            self._settings,
            self._clock,
            self._counters,
            self._store_window_lock,
            self._other_windows,
        )
        return topic, Groups(topic, self._store.catalog)

    def _other_windows(self, asking: Topic) -> Sequence[PayloadWindow]:
        """The windows of the other topics that share payloads with this one; the caller holds their common lock."""
        others = [opened.topic for opened in self.all() if opened.topic is not asking]
        return [topic.log.state.window for topic in others if topic.shares_window]

    def _store_change(self, found: OpenTopic, record: TopicRecord) -> None:
        if record != found.record:
            found.topic.change(self._store.catalog.change_topic(record, lambda _: record))

    @staticmethod
    def _check_same(present: TopicRecord, wanted: TopicSettings, given: dict[str, Any]) -> None:
        for name in given:
            there, asked = getattr(present.settings, name), getattr(wanted, name)
            if there != asked:
                raise SettingsConflict(present.name, name, str(asked), str(there))


def _grown(record: TopicRecord, partitions: int | None) -> TopicRecord:
    """The record with so many partitions, which cannot be fewer than it has."""
    count = record.partitions if partitions is None else check_partitions(partitions)
    if count < record.partitions:
        rule = f"topic {record.name!r} has {record.partitions} partitions: they can be added, not removed"
        raise PartitionsCannotShrink("partitions", str(count), rule)
    return replace(record, partitions=count)


def check_partitions(partitions: object) -> int:
    """A valid number of partitions."""
    if not isinstance(partitions, int) or isinstance(partitions, bool) or not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidInput("partitions", repr(partitions), f"it must be a whole number from 1 to {PARTITIONS_MAX}")
    return partitions

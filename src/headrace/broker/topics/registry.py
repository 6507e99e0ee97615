"""The registry of the topics of a store: create, find, alter, delete.

Finding takes no lock: single steps of a dictionary are atomic, and all topics are copied in one step before they are
looked at. Creating, altering and deleting are serialised by one lock. A topic whose files cannot be opened is listed
too, and every use of it raises the reason.

In a shared store other servers create, alter and delete topics too. The catalog decides: it is queried before a topic
is created, altered, described or deleted here, when one is unknown here, and when another server sends a notification.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.broker.clock import Clock
from headrace.broker.cluster.announcements import TOPICS, group_notification
from headrace.broker.cluster.servers import Servers
from headrace.broker.counters import Counters
from headrace.broker.groups.groups import Groups
from headrace.broker.groups.ledger import Ledger
from headrace.broker.groups.store import LocalGroupStore, SharedGroupStore
from headrace.broker.publish.combiner import Leaders
from headrace.broker.settings import ArchiveSettings, BrokerSettings, TopicDefaults
from headrace.broker.topics.topic import Topic
from headrace.core.checks import check_partitions
from headrace.core.errors import (
    Closed,
    DiskFull,
    HeadraceError,
    PartitionsCannotShrink,
    QuotaExceeded,
    SettingsConflict,
    StorageError,
    StoreUnavailable,
    TopicDeleted,
    TopicExists,
    TopicNotFound,
    again,
)
from headrace.core.groups.group import Group
from headrace.core.names import check_topic_name, topic_key
from headrace.core.publish.payload_window import PayloadWindow
from headrace.core.topics.retention import droppable
from headrace.core.topics.settings import TopicSettings
from headrace.storage.archive.archives import Archives
from headrace.storage.archive.files import open_files
from headrace.storage.archive.tiered_log import TieredLog
from headrace.storage.catalog import TopicRecord
from headrace.storage.interface import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenTopic:
    """An open topic with its groups."""

    topic: Topic
    groups: Groups

    @property
    def record(self) -> TopicRecord:
        """The topic's record in the catalog."""
        return self.topic.record

    def outlived(self, settings: TopicSettings, now_us: int) -> dict[int, int]:
        """By partition the end of the segments that these settings delete now, if an archive has messages below it."""
        log = self.topic.log
        view = log.newest_view() if isinstance(log, TieredLog) else None
        if view is None or not view.manifest.files:
            return {}
        pieces = log.pieces()
        count = droppable(pieces, settings, self.groups.held(), now_us)
        return dict(enumerate(pieces[count - 1].end_offsets.tolist())) if count else {}

    def end(self, reason: HeadraceError) -> None:
        """Finish accepted publishes, wake all waiters, and close the files."""
        self.topic.end(reason)
        self.groups.settle()
        self.topic.log.close()


@dataclass(frozen=True, slots=True)
class BrokenTopic:
    """A topic in the catalog that could not be opened."""

    record: TopicRecord
    error: HeadraceError


class Topics:
    """All topics of a store. Thread-safe."""

    def __init__(
        self,
        store: Store,
        settings: BrokerSettings,
        clock: Clock,
        counters: Counters,
        servers: Servers,
        defaults: TopicDefaults | None = None,
        archive: ArchiveSettings | None = None,
    ) -> None:
        self.defaults = defaults or TopicDefaults()
        self._store = store
        settled = archive or ArchiveSettings()
        files = open_files(settled.url) if settled.url else None
        self.archives = Archives(store.catalog, store.signals is not None, files, settled.cache_bytes)
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._servers = servers
        self._lock = threading.Lock()
        self._store_window_lock = threading.Lock()
        self._is_shared = store.signals is not None
        self._ledger = Ledger(store.catalog)
        self._leaders = Leaders()
        self._closed = False
        # How often topics were created, changed or deleted, as known here.
        self.version = 0
        # In the order of creation.
        self._topics: dict[str, OpenTopic | BrokenTopic] = {}
        self._keys: dict[int, str] = {}
        self._newest_id = 0
        self._partitions = 0
        groups = {} if self._is_shared else store.catalog.groups_by_topic()
        for record in store.catalog.topics():
            self._put(record.key, self._open(record, groups.get(record.id, ())))

    def find(self, name: str, is_newest: bool = False) -> OpenTopic:
        """Find a topic by name, case-insensitively; `is_newest` applies what another server did to it a moment ago."""
        self._check_open()
        # A name that is its own key, as most are, need not be folded.
        found = self._topics.get(name) if isinstance(name, str) else None
        found = found or self._topics.get(topic_key(check_topic_name(name)))
        if isinstance(found, OpenTopic) and not is_newest:
            return found
        if self._is_shared and (found is None or is_newest):
            with self._lock:
                self._renew(topic_key(name))
        return self._found(name)

    def knows(self, name: str) -> bool:
        """Whether `find` would not block."""
        return not self._is_shared or name in self._topics or topic_key(name) in self._topics

    def of_id(self, topic_id: int) -> OpenTopic | None:
        """The open topic with this id, or None."""
        found = self._topics.get(self._keys.get(topic_id, ""))
        return found if isinstance(found, OpenTopic) and found.record.id == topic_id else None

    def find_id(self, topic_id: int) -> OpenTopic | None:
        """The same, with what other servers did to the topics of a shared store."""
        found = self.of_id(topic_id)
        if found is None:
            self.sync()
            found = self.of_id(topic_id)
        return found

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the broker")

    def all(self) -> list[OpenTopic]:
        """The open topics, in the order of creation."""
        return [topic for topic in list(self._topics.values()) if isinstance(topic, OpenTopic)]

    def failing(self) -> dict[str, str]:
        """The topics that accept no messages, with the reason."""
        reasons: dict[str, str] = {}
        for topic in list(self._topics.values()):
            if isinstance(topic, BrokenTopic):
                reasons[topic.record.name] = str(topic.error)
            elif topic.topic.log.failure is not None:
                reasons[topic.topic.record.name] = topic.topic.log.failure
        return reasons

    def with_gaps(self) -> dict[str, int]:
        """The topics that skip offsets because messages were lost, and how many; not for shared stores."""
        if self._is_shared:
            return {}
        skipped = {opened.record.name: opened.topic.log.offsets().skipped for opened in self.all()}
        return {name: count for name, count in skipped.items() if count}

    def was_deleted(self, topic_id: int) -> bool:
        """Whether the topic with this id was deleted, by whichever server.

        The catalog is asked only about topics that are not known here, not about each of thousands.
        """
        return self.of_id(topic_id) is None and self._store.catalog.was_deleted(topic_id)

    def records(self) -> list[TopicRecord]:
        """All topics, including those that could not be opened."""
        self._check_open()
        self.sync()
        return [topic.record for topic in list(self._topics.values())]

    def sync(self) -> None:
        """Apply what other servers did to the topics of a shared store."""
        if not self._is_shared:
            return
        with self._lock:
            if self._closed:
                return
            records = {record.key: record for record in self._store.catalog.topics()}
            for key in {**self._topics, **records}:
                self._refresh(key, records.get(key))

    def create(
        self, name: str, partitions: int | None, settings: dict[str, Any], must_be_new: bool = False
    ) -> OpenTopic:
        """Create a topic; an existing one gets the missing partitions, or is an error."""
        name = check_topic_name(name)
        wanted = self.defaults.settings().change(**settings)
        with self._lock:
            self._check_open()
            is_there = self._renew(topic_key(name)) is not None
            if not is_there:
                try:
                    self._add(
                        name, check_partitions(self.defaults.partitions if partitions is None else partitions), wanted
                    )
                except TopicExists:
                    # Another server was faster.
                    is_there = self._renew(topic_key(name)) is not None
            if is_there and must_be_new:
                raise TopicExists(name)
            found = self._found(name)
            if is_there:
                self._check_same(found.record, wanted, settings)
                self._store_change(found, lambda record: _grown(record, partitions))
            return found

    def _add(self, name: str, partitions: int, settings: TopicSettings) -> None:
        if len(self._topics) >= self._settings.topics_max:
            raise QuotaExceeded("topics", "broker.topics_max", self._settings.topics_max)
        self._check_partitions(partitions)
        self.archives.check(settings)
        now_us = self._clock.now_us()
        record = self._store.catalog.add_topic(
            name, topic_key(name), partitions, settings, now_us, lambda made: self._store.create_log(made, now_us)
        )
        self._put(record.key, self._open(record, ()))
        self._announce(TOPICS)

    def _check_partitions(self, added: int) -> None:
        """Refuse more partitions than the store may have; the caller holds the lock."""
        partitions_max = self._settings.partitions_max
        if self._partitions + added > partitions_max:
            raise QuotaExceeded("partitions of all topics", "broker.partitions_max", partitions_max)

    def alter(self, name: str, partitions: int | None, settings: dict[str, Any]) -> OpenTopic:
        """Change settings or add partitions."""

        def altered(record: TopicRecord) -> TopicRecord:
            return replace(_grown(record, partitions), settings=record.settings.change(**settings))

        with self._lock:
            self._check_open()
            self._renew(topic_key(check_topic_name(name)))
            found = self._found(name)
            self._store_change(found, altered)
            return found

    def delete_before(self, name: str, offsets: Mapping[int, int]) -> OpenTopic:
        """Delete the messages of partitions below an offset each, durably; segments are dropped by maintenance."""
        with self._lock:
            self._check_open()
            self._renew(topic_key(check_topic_name(name)))
            found = self._found(name)
            found.groups.check_offsets(offsets)
            start = found.topic.offsets().start
            risen = {partition: offset for partition, offset in offsets.items() if offset > start[partition]}
            if risen:
                found.topic.change(self._store.catalog.delete_before(found.record, risen))
                self._announce(TOPICS)
            return found

    def delete(self, name: str) -> None:
        """Delete a topic, free its disk space, and wake all waiters with an error."""
        key = topic_key(check_topic_name(name))
        with self._lock:
            self._check_open()
            doomed = self._renew(key)
            if doomed is None:
                raise TopicNotFound(name)
            record, reason = doomed.record, TopicDeleted(doomed.record.name)
            # Listed until it is deleted from the catalog: if that fails, deleting can be retried.
            self._topics[key] = BrokenTopic(record, reason)
            if isinstance(doomed, OpenTopic):
                doomed.end(reason)
            was_there = self._remove(record)
            self._put(key, None)
            self._announce(TOPICS)
            # Also if it did not exist: this call may have deleted it, and lost the answer.
            self._store.delete_log(record.id)
            if not was_there:
                raise TopicNotFound(name)

    def _remove(self, record: TopicRecord) -> bool:
        """Delete a topic from the catalog; if that fails on a shared store, it continues on all servers."""
        try:
            return self._store.catalog.remove_topic(record.id)
        except StorageError:
            if self._is_shared:
                self._put(record.key, self._open_again(record))
            raise

    def close(self) -> None:
        """Close all topics; accepted publishes are finished."""
        with self._lock:
            self._closed = True
            for opened in self.all():
                opened.end(Closed("the broker"))
        self._leaders.close()

    def _found(self, name: str) -> OpenTopic:
        """A topic as just read from the catalog; the caller holds the lock."""
        found = self._topics.get(topic_key(name))
        if found is None:
            raise TopicNotFound(name)
        if isinstance(found, BrokenTopic):
            raise again(found.error)
        return found

    def _renew(self, key: str) -> OpenTopic | BrokenTopic | None:
        """The current state of the topic; the caller holds the lock."""
        if self._is_shared and not self._closed:
            self._refresh(key, self._store.catalog.topic(key))
        broken = self._topics.get(key)
        if isinstance(broken, BrokenTopic) and isinstance(broken.error, StoreUnavailable | DiskFull):
            # A retried creation must return the topic, even if it could not be opened when it was created.
            self._put(key, self._open_again(broken.record))
        return self._topics.get(key)

    def _refresh(self, key: str, record: TopicRecord | None) -> None:
        """Refresh one topic from the catalog; the caller holds the lock."""
        present = self._topics.get(key)
        if present is not None and (record is None or record.id != present.record.id):
            self._put(key, None)
            if isinstance(present, OpenTopic):
                present.end(TopicDeleted(present.record.name))
            present = None
        if record is not None and present is None:
            self._put(key, self._open_again(record))
        elif record is not None and isinstance(present, OpenTopic) and record != present.record:
            self._change(present, record)

    def _change(self, found: OpenTopic, record: TopicRecord) -> None:
        """Apply other settings or more partitions; the caller holds the lock."""
        self._partitions += record.partitions - found.record.partitions
        found.topic.change(record)
        self.version += 1

    def _put(self, key: str, topic: OpenTopic | BrokenTopic | None) -> None:
        """Add, replace or remove a topic, in the order of creation; the caller holds the lock."""
        present = self._topics.get(key)
        if present is not None:
            self._partitions -= present.record.partitions
            self._keys.pop(present.record.id, None)
        if topic is None:
            self._topics.pop(key, None)
        else:
            self._topics[key] = topic
            self._keys[topic.record.id] = key
            self._partitions += topic.record.partitions
            if topic.record.id < self._newest_id and present is None:
                self._topics = dict(sorted(self._topics.items(), key=lambda item: item[1].record.id))
            self._newest_id = max(self._newest_id, topic.record.id)
        self.version += 1

    def _announce(self, notification: str) -> None:
        if self._store.signals is not None:
            self._store.signals.announce(notification)

    def _open_again(self, record: TopicRecord) -> OpenTopic | BrokenTopic:
        return self._open(record, () if self._is_shared else self._store.catalog.groups(record.id))

    def _open(self, record: TopicRecord, groups: Iterable[Group]) -> OpenTopic | BrokenTopic:
        """Open a topic; `groups` are those that the catalog has, if only this server has the store."""
        try:
            return OpenTopic(*self._parts(record, groups))
        except StorageError as error:
            logger.error("topic %r cannot be opened: %s", record.name, error)
            return BrokenTopic(record, error)

    def _parts(self, record: TopicRecord, groups: Iterable[Group]) -> tuple[Topic, Groups]:
        log = self.archives.tier(record, self._store.open_log(record, self._clock.now_us()))
        topic = Topic(
            record,
            log,
            self._settings,
            self._clock,
            self._counters,
            self._store_window_lock,
            self._other_windows,
            self._leaders,
            self._is_shared,
        )
        catalog = self._store.catalog
        local = None if self._is_shared else LocalGroupStore(topic, catalog, self._ledger, groups)
        stored = local or SharedGroupStore(topic, catalog)
        announce = partial(self._announce, group_notification(record.id))
        known = Groups(topic, stored, announce, self._clock, self._servers, self._settings)
        if not self._is_shared:
            known.adopt(stored.all(), ())
        return topic, known

    def _other_windows(self, asking: Topic) -> Sequence[PayloadWindow]:
        """The windows of the other topics that share payloads with this one; the caller holds their common lock."""
        windows = []
        for topic in [opened.topic for opened in self.all() if opened.topic is not asking]:
            # A topic that another server has deleted no longer shares payloads.
            with suppress(TopicDeleted):
                if topic.shares_window:
                    windows.append(topic.log.window())
        return windows

    def _store_change(self, found: OpenTopic, rule: Callable[[TopicRecord], TopicRecord]) -> None:
        wanted = rule(found.record)
        if wanted.partitions > found.record.partitions:
            self._check_partitions(wanted.partitions - found.record.partitions)
        if wanted != found.record:
            self.archives.check(wanted.settings, found.record.settings)
            self._change(found, self._store.catalog.change_topic(found.record, rule))
            self._announce(TOPICS)

    @staticmethod
    def _check_same(present: TopicRecord, wanted: TopicSettings, given: dict[str, Any]) -> None:
        for name in given:
            there, asked = getattr(present.settings, name), getattr(wanted, name)
            if there != asked:
                texts = ("none" if each is None else str(each) for each in (asked, there))
                raise SettingsConflict(present.name, name, *texts)


def _grown(record: TopicRecord, partitions: int | None) -> TopicRecord:
    """The record with a new number of partitions, which cannot shrink."""
    count = record.partitions if partitions is None else check_partitions(partitions)
    if count < record.partitions:
        rule = f"topic {record.name!r} has {record.partitions} partitions: partitions can be added, not removed"
        raise PartitionsCannotShrink("partitions", str(count), rule)
    return replace(record, partitions=count)

"""The consumers and producers of the queue API (seed 004): registered with a topic, known by their ids.

Every consumer is a group of its own, which reads its topic in order; a producer is no more than its number. Numbers
come from the catalog. How many were given out is kept in memory, so that checking an id costs no look into it; an id
that is not known here is looked up before it is refused, since another server may have given it out.

Lock order: the lock for making topics is taken before that of the topics; the other one is held alone.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from headrace.broker.queue_api.ordered_reader import OrderedReader, Taken
from headrace.broker.topics.registry import OpenTopic, Topics
from headrace.core.errors import IdNotFound, Overloaded, TopicNotFound
from headrace.core.ids import Kind, check_id_of, make_id
from headrace.core.limits import IDS_TRIED_MAX
from headrace.storage.catalog import Catalog

_GROUP_PREFIX: Final = "queue-consumer-"


@dataclass(slots=True)
class _Known:
    """What is known of the registrations of one topic; all of it can be found out again."""

    opened: OpenTopic
    given_out: dict[Kind, int] = field(default_factory=lambda: {"consumer": 0, "producer": 0})
    readers: dict[int, OrderedReader] = field(default_factory=dict)


class Registrations:
    """The consumers and producers of all topics. Safe for threads."""

    def __init__(self, topics: Topics, catalog: Catalog) -> None:
        self._topics = topics
        self._catalog = catalog
        self._making = threading.Lock()
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}

    def has_topic(self, name: str) -> bool:
        """Whether there is a topic of this name."""
        try:
            self._topics.find(name)
        except TopicNotFound:
            return False
        return True

    def create_topic(self, name: str, partitions: int | None = None) -> None:
        """Make a topic; one that is there is an error."""
        self._topics.create(name, partitions, {}, must_be_new=True)

    def register_consumer(self, topic: str) -> int:
        """The id of a new consumer, which begins at the first message."""
        opened = self._topics.find(topic)
        for _ in range(IDS_TRIED_MAX):
            consumer_id = self._take_id("consumer", opened)
            # A group of this name that someone else made may stand anywhere.
            if not opened.groups.has(group_name(consumer_id)):
                opened.groups.register(group_name(consumer_id), 1, None, "earliest")
                return consumer_id
        raise Overloaded(f"the list of groups of topic {topic!r} named as consumers", IDS_TRIED_MAX, 0.0)

    def register_producer(self, topic: str, partitions: int | None = None) -> int:
        """The id of a new producer; its topic is made if it is missing."""
        with self._making:
            if not self.has_topic(topic):
                self._topics.create(topic, partitions, {})
        return self._take_id("producer", self._topics.find(topic))

    def knows_producer(self, topic: str, producer_id: int) -> bool:
        """Whether it is certain, without waiting for anything, that the topic gave out this id."""
        topic_id = self._topics.find(topic).record.id
        known = self._known.get(topic_id)
        if known is None:
            return False
        try:
            check_id_of("producer", producer_id, topic_id, known.given_out["producer"])
        except IdNotFound:
            return False
        return True

    def check_producer(self, topic: str, producer_id: int) -> None:
        """Refuse an id that the topic did not give out to a producer."""
        self._check("producer", producer_id, self._of(self._topics.find(topic)))

    def consume(self, topic: str, consumer_id: int) -> Taken | None:
        """The next message for a consumer, or none; its position is moved durably before this returns."""
        return self._reader(topic, consumer_id).take()

    def size(self, topic: str, consumer_id: int) -> int:
        """How many messages there are yet to read for a consumer."""
        return self._reader(topic, consumer_id).left()

    def _reader(self, topic: str, consumer_id: int) -> OrderedReader:
        known = self._of(self._topics.find(topic))
        number = self._check("consumer", consumer_id, known)
        reader = known.readers.get(number)
        if reader is None:
            # Of two that come at the same time one is taken: its lock is what orders the reads.
            reader = known.readers.setdefault(number, OrderedReader(known.opened, group_name(consumer_id)))
        return reader

    def _check(self, kind: Kind, value: int, known: _Known) -> int:
        opened = known.opened
        if value >= make_id(kind, known.given_out[kind] + 1, 0):
            self._raise_to(known, kind, _number(opened, self._catalog.numbers_given(opened.record.id, kind)))
        return check_id_of(kind, value, opened.record.id, known.given_out[kind])

    def _take_id(self, kind: Kind, opened: OpenTopic) -> int:
        number = _number(opened, self._catalog.take_number(opened.record.id, kind))
        self._raise_to(self._of(opened), kind, number)
        return make_id(kind, number, opened.record.id)

    def _raise_to(self, known: _Known, kind: Kind, number: int) -> None:
        with self._lock:
            known.given_out[kind] = max(known.given_out[kind], number)

    def _of(self, opened: OpenTopic) -> _Known:
        known = self._known.get(opened.record.id)
        if known is None:
            with self._lock:
                # Nobody asks for topics that have ended any more.
                alive = {key: other for key, other in self._known.items() if other.opened.topic.ended is None}
                known = alive.setdefault(opened.record.id, _Known(opened))
                self._known = alive
        return known


def group_name(consumer_id: int) -> str:
    """The group that a consumer of the queue API is."""
    return f"{_GROUP_PREFIX}{consumer_id}"


def is_group_of_consumer(name: str) -> bool:
    """Whether a group is a consumer of the queue API."""
    return name.startswith(_GROUP_PREFIX)


def _number(opened: OpenTopic, number: int | None) -> int:
    """A number that the catalog gave, or an error if the topic is gone from it."""
    if number is None:
        raise TopicNotFound(opened.record.name)
    return number

"""The registered consumers and producers of the PgQueue HTTP API, identified by their ids.

Every consumer is its own group, which reads the topic in order. A producer is only a number, unless it names a client,
whose messages are counted. Idle consumers are deleted. Numbers are assigned by the catalog and cached, so that checking
an id needs no query; an unknown id is queried before it is refused, because another server may have assigned it.

Lock order: the lock for making topics is taken before that of the topics; the other one is held alone.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from headrace.broker.clock import Clock
from headrace.broker.queue_api.numbered_clients import NumberedClients
from headrace.broker.queue_api.ordered_reader import OrderedReader, Taken
from headrace.broker.settings import QueueApiSettings
from headrace.broker.topics.registry import OpenTopic, Topics
from headrace.core.errors import GroupNotFound, IdNotFound, Overloaded, TopicNotFound
from headrace.core.ids import NUMBER_DIGITS_MAX, Kind, check_id_of, make_id, number_of, topic_id_of
from headrace.core.limits import IDS_TRIED_MAX, MICROSECONDS
from headrace.storage.catalog import Catalog

CONSUMER_PREFIX: Final = "queue-consumer-"
# Registering a consumer needs a right on this group name: the server gives the number.
ANY_CONSUMER: Final = f"{CONSUMER_PREFIX}*"

_DAY_US: Final = 86_400 * MICROSECONDS
# How often the activity of a consumer is recorded within its idle time.
_SEEN_PER_IDLE_TIME: Final = 30


@dataclass(slots=True)
class _Reader:
    """A consumer's reader, and when its activity was last recorded."""

    in_order: OrderedReader
    seen_us: int | None = None


@dataclass(slots=True)
class _Known:
    """The cached registrations of one topic."""

    opened: OpenTopic
    given_out: dict[Kind, int] = field(default_factory=lambda: {"consumer": 0, "producer": 0})
    readers: dict[int, _Reader] = field(default_factory=dict)


class Registrations:
    """The consumers and producers of all topics. Thread-safe."""

    def __init__(
        self, topics: Topics, catalog: Catalog, clock: Clock, settings: QueueApiSettings | None = None
    ) -> None:
        self.settings = settings or QueueApiSettings()
        self.clients = NumberedClients(topics)
        self._topics = topics
        self._catalog = catalog
        self._clock = clock
        self._making = threading.Lock()
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}

    def has_topic(self, name: str) -> bool:
        """Whether a topic with this name exists."""
        try:
            self._topics.find(name)
        except TopicNotFound:
            return False
        return True

    def create_topic(self, name: str, partitions: int | None = None) -> None:
        """Create a topic; raises if it already exists."""
        self._topics.create(name, partitions, {}, must_be_new=True)

    def register_consumer(self, topic: str) -> int:
        """Register a consumer, which starts at the first message; returns its id."""
        opened = self._topics.find(topic)
        for _ in range(IDS_TRIED_MAX):
            consumer_id = self._take_id("consumer", opened)
            # A group with this name that someone else created may have any position.
            if not opened.groups.has(group_name(consumer_id)):
                opened.groups.register(group_name(consumer_id), 1, None, "earliest")
                return consumer_id
        raise Overloaded(f"the list of groups of topic {topic!r} named as consumers", IDS_TRIED_MAX, 0.0)

    def register_producer(self, topic: str, partitions: int | None = None) -> int:
        """Register a producer; returns its id. The topic is created if it does not exist."""
        with self._making:
            if not self.has_topic(topic):
                self._topics.create(topic, partitions, {})
        return self._take_id("producer", self._topics.find(topic))

    def knows_producer(self, topic: str, producer_id: int) -> bool:
        """Whether the topic certainly assigned this id; does not block."""
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
        """Raise for an id that is not of a producer of the topic."""
        self._check("producer", producer_id, self._of(self._topics.find(topic)))

    def consume(self, topic: str, consumer_id: int) -> Taken | None:
        """The next message of a consumer, or None; its position is moved durably before this returns."""
        return self._reader(topic, consumer_id).take()

    def size(self, topic: str, consumer_id: int) -> int:
        """The number of unread messages of a consumer."""
        return self._reader(topic, consumer_id).left()

    def check_consumer(self, topic: str, consumer_id: int) -> None:
        """Raise for an id that is not of a consumer of the topic, or was deleted."""
        self._reader(topic, consumer_id).left()

    def set_place(self, consumer_id: int, place: int) -> None:
        """Move a consumer after the message at this place; -1 is before the first."""
        self._reader(self.topic_of(consumer_id), consumer_id).place_at(place + 1)

    def topic_of(self, consumer_id: int) -> str:
        """The name of the topic that an id names."""
        opened = self._topics.find_id(topic_id_of(consumer_id))
        if opened is None:
            raise IdNotFound("consumer", str(consumer_id)[:100], "no topic has a consumer with this id: register first")
        return opened.record.name

    def forget_idle(self) -> int:
        """Delete consumers that were idle too long, with their positions; returns how many."""
        now_us = self._clock.now_us()
        idle_since_us = now_us - self.settings.consumer_idle_days * _DAY_US
        idle = self._catalog.forget_consumers(CONSUMER_PREFIX, idle_since_us, now_us)
        for topic_id, group in idle:
            opened = self._topics.of_id(topic_id)
            if opened is not None:
                # The group or the topic may have been deleted.
                with suppress(GroupNotFound, TopicNotFound):
                    opened.groups.delete(group)
                self._of(opened).readers.pop(_number_in(group), None)
        return len(idle)

    def _reader(self, topic: str, consumer_id: int) -> OrderedReader:
        known = self._of(self._topics.find(topic))
        number = self._check("consumer", consumer_id, known)
        reader = known.readers.get(number)
        if reader is None:
            # Of two concurrent ones only one is kept: its lock orders the reads.
            in_order = OrderedReader(known.opened, group_name(consumer_id))
            reader = known.readers.setdefault(number, _Reader(in_order))
        now_us = self._clock.now_us()
        rest_us = self.settings.consumer_idle_days * _DAY_US // _SEEN_PER_IDLE_TIME
        if reader.seen_us is None or not reader.seen_us <= now_us < reader.seen_us + rest_us:
            self._catalog.see_consumer(known.opened.record.id, group_name(consumer_id), now_us)
            reader.seen_us = now_us
        return reader.in_order

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
                # Remove topics that have ended.
                alive = {key: other for key, other in self._known.items() if other.opened.topic.ended is None}
                known = alive.setdefault(opened.record.id, _Known(opened))
                self._known = alive
        return known


def group_name(consumer_id: int) -> str:
    """The group of a consumer of the queue API."""
    return f"{CONSUMER_PREFIX}{consumer_id}"


def is_consumer(group: str) -> bool:
    """Whether a group belongs to a consumer of the queue API."""
    return group.startswith(CONSUMER_PREFIX)


def _number_in(group: str) -> int:
    """The consumer number of a group; 0 for other groups that have such a name."""
    digits = group.removeprefix(CONSUMER_PREFIX)
    return number_of(int(digits)) if digits.isdecimal() and len(digits) <= NUMBER_DIGITS_MAX * 2 else 0


def _number(opened: OpenTopic, number: int | None) -> int:
    """A number from the catalog; raises if the topic was deleted from it."""
    if number is None:
        raise TopicNotFound(opened.record.name)
    return number

"""The consumers and producers of the queue API (seed 004): registered with a topic, known by their ids.

Every consumer is a group of its own, which reads its topic in order; a producer is no more than its number, unless it
gives its messages a client's name, which counts them. A consumer that nobody used for long is forgotten. Numbers
come from the catalog. How many were given out is kept in memory, so that checking an id costs no look into it; an id
that is not known here is looked up before it is refused, since another server may have given it out.

Lock order: the lock for making topics is taken before that of the topics; the other one is held alone.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from headrace.broker.clock import Clock
from headrace.broker.numbered_clients import NumberedClients
from headrace.broker.queue_api.ordered_reader import OrderedReader, Taken
from headrace.broker.settings import QueueApiSettings
from headrace.broker.topics.registry import OpenTopic, Topics
from headrace.core.errors import GroupNotFound, IdNotFound, Overloaded, TopicNotFound
from headrace.core.ids import NUMBER_DIGITS_MAX, Kind, check_id_of, make_id, number_of, topic_id_of
from headrace.core.limits import IDS_TRIED_MAX, MICROSECONDS
from headrace.storage.catalog import Catalog

CONSUMER_PREFIX: Final = "queue-consumer-"

_DAY_US: Final = 86_400 * MICROSECONDS
# A consumer is noted as seen this often within the time after which it would be forgotten.
_SEEN_PER_IDLE_TIME: Final = 30


@dataclass(slots=True)
class _Reader:
    """A consumer's way through its topic, and when it was last noted that it was seen."""

    in_order: OrderedReader
    seen_us: int | None = None


@dataclass(slots=True)
class _Known:
    """What is known of the registrations of one topic; all of it can be found out again."""

    opened: OpenTopic
    given_out: dict[Kind, int] = field(default_factory=lambda: {"consumer": 0, "producer": 0})
    readers: dict[int, _Reader] = field(default_factory=dict)


class Registrations:
    """The consumers and producers of all topics. Safe for threads."""

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

    def check_consumer(self, topic: str, consumer_id: int) -> None:
        """Refuse an id that the topic did not give out to a consumer, or that was forgotten."""
        self._reader(topic, consumer_id).left()

    def set_place(self, consumer_id: int, place: int) -> None:
        """Let a consumer continue after the message of this place; -1 is before the first."""
        self._reader(self.topic_of(consumer_id), consumer_id).place_at(place + 1)

    def topic_of(self, consumer_id: int) -> str:
        """The name of the topic that an id names."""
        topic_id = topic_id_of(consumer_id)
        opened = self._topics.of_id(topic_id)
        if opened is None:
            self._topics.sync()
            opened = self._topics.of_id(topic_id)
        if opened is None:
            raise IdNotFound("consumer", str(consumer_id)[:100], "no topic has a consumer with this id: register first")
        return opened.record.name

    def forget_idle(self) -> int:
        """Forget the consumers that nobody used for long, with their positions; how many."""
        now_us = self._clock.now_us()
        idle_since_us = now_us - self.settings.consumer_idle_days * _DAY_US
        idle = self._catalog.forget_consumers(CONSUMER_PREFIX, idle_since_us, now_us)
        for topic_id, group in idle:
            opened = self._topics.of_id(topic_id)
            if opened is not None:
                # Someone may have deleted the group, or the topic.
                with suppress(GroupNotFound, TopicNotFound):
                    opened.groups.delete(group)
                self._of(opened).readers.pop(_number_in(group), None)
        return len(idle)

    def _reader(self, topic: str, consumer_id: int) -> OrderedReader:
        known = self._of(self._topics.find(topic))
        number = self._check("consumer", consumer_id, known)
        reader = known.readers.get(number)
        if reader is None:
            # Of two that come at the same time one is taken: its lock is what orders the reads.
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
                # Nobody asks for topics that have ended any more.
                alive = {key: other for key, other in self._known.items() if other.opened.topic.ended is None}
                known = alive.setdefault(opened.record.id, _Known(opened))
                self._known = alive
        return known


def group_name(consumer_id: int) -> str:
    """The group that a consumer of the queue API is."""
    return f"{CONSUMER_PREFIX}{consumer_id}"


def is_consumer(group: str) -> bool:
    """Whether a group is a consumer of the queue API."""
    return group.startswith(CONSUMER_PREFIX)


def _number_in(group: str) -> int:
    """The number of the consumer that a group is; groups that others named so have none, and 0 is no number."""
    digits = group.removeprefix(CONSUMER_PREFIX)
    return number_of(int(digits)) if digits.isdecimal() and len(digits) <= NUMBER_DIGITS_MAX * 2 else 0


def _number(opened: OpenTopic, number: int | None) -> int:
    """A number that the catalog gave, or an error if the topic is gone from it."""
    if number is None:
        raise TopicNotFound(opened.record.name)
    return number

"""A consumer of several topics: a list of them, or all whose name matches a pattern, including later ones.

It has a consumer for each topic and takes from them in turn. In a group it is a member of the group of that name in
each topic, by one member id, and says which of its topics each is, so that the partitions of all of them are divided
evenly. One thread sends the heartbeats of all topics; reading takes a thread for each. Partitions are named by topic
and number. A batch is of one topic, which its column `topic` names.

Topics that match a pattern are looked for while polling. A topic that appears later is read from its beginning; one
that was deleted is left out. A topic of a list that was deleted raises.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from headrace.client import fork
from headrace.client.consumer.assignment import Callbacks, PartitionsChanged, callbacks_of
from headrace.client.consumer.base import BaseConsumer
from headrace.client.consumer.consumer import Consumer, ConsumerPart
from headrace.client.consumer.heartbeats import Heartbeats
from headrace.client.message import Message
from headrace.client.read.scan import NO_ROWS
from headrace.client.read.start import Start
from headrace.client.retry import Calls
from headrace.client.settings import ConsumerSettings
from headrace.client.transport.transport import Transport
from headrace.core.errors import HeadraceError, InvalidInput, TopicDeleted, TopicNotFound
from headrace.core.lists import repeated
from headrace.core.names import topic_key
from headrace.core.reports.descriptions import TransactionOffsets
from headrace.wire.operations import ListTopics

# How often topics that match a pattern are looked for.
_LOOK_SECONDS: Final = 5.0
# How often a loop over the messages of one topic counts as a poll of the others.
_POLLED_SECONDS: Final = 1.0
# The longest wait: a signal handler may wake just before it.
_WAIT_SECONDS_MAX: Final = 1.0
# A topic that was deleted.
_GONE: Final = (TopicNotFound, TopicDeleted)
# Not of an empty list, for which pyarrow imports pandas.
_NO_ROWS: Final = NO_ROWS.append_column(pa.field("topic", pa.string(), nullable=False), pa.nulls(0, pa.string()))

Answer = TypeVar("Answer")


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


# Several topics; a string is one.
SeveralTopics = list[str] | tuple[str, ...] | set[str] | frozenset[str] | None


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which topics are read: these, or those that match a pattern."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    @classmethod
    def of(cls, names: Iterable[str] | None, pattern: str | None) -> TopicChoice:
        """Check what a caller asks for."""
        if (names is None) == (pattern is None):
            raise InvalidInput("topic", "none" if names is None else "a list and a pattern", "give topics or a pattern")
        if pattern is not None:
            try:
                return cls(pattern=re.compile(pattern, re.IGNORECASE))
            except (re.error, TypeError) as error:
                raise InvalidInput("pattern", repr(pattern)[:100], f"it is not a regular expression: {error}") from None
        given = tuple({topic_key(name): name for name in names or ()}.values())
        if not given:
            raise InvalidInput("topic", "[]", "name at least one topic")
        return cls(given)

    def among(self, existing: Iterable[str]) -> list[str]:
        """The topics to read, given those that exist."""
        if self.pattern is None:
            return list(self.names)
        return [name for name in existing if self.pattern.fullmatch(name)]

    def __str__(self) -> str:
        return f"topics {list(self.names)}" if self.pattern is None else f"topics like {self.pattern.pattern!r}"


class TopicsConsumer(BaseConsumer[TopicPartition]):
    """Reads several topics.

    >>> from headrace.testing import embedded
    >>> with embedded() as client:
    ...     for name in ("orders-eu", "orders-us"):
    ...         topic = client.create_topic(name)
    ...         with client.producer(name) as producer:
    ...             future = producer.send(b"one loaf")
    ...     with client.consumer(pattern="orders-.*", group="billing") as consumer:
    ...         sorted((message.topic, message.value) for message in consumer.messages(idle_seconds=0.5))
    [('orders-eu', b'one loaf'), ('orders-us', b'one loaf')]
    """

    def __init__(
        self,
        transport: Transport,
        topics: TopicChoice,
        settings: ConsumerSettings,
        group: str | None = None,
        start: Start = "earliest",
        member_id: str | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        super().__init__()
        if isinstance(start, Mapping):
            raise InvalidInput("start", repr(start)[:100], "offsets by partition need a consumer of one topic")
        self._transport = transport
        self._topics = topics
        self._settings = settings
        self._group = group
        self._start = start
        self._member = member_id or f"member-{uuid.uuid4().hex[:12]}"
        self._callbacks = callbacks or callbacks_of(None, None, None)
        self._calls = Calls(transport, settings.timeout_seconds)
        # Set when one of them may have something. Reentrant, since a signal handler may stop the thread that waits.
        self._changed = threading.Condition()
        self._is_awoken = False
        self._heartbeats = Heartbeats()
        self._consumers: dict[str, Consumer] = {}
        # The topics in the order in which they are asked.
        self._turns: deque[str] = deque()
        # When those that are not asked counted as polled last.
        self._polled_at = 0.0
        # The batch that was taken last, whose it is, and how it looked there.
        self._taken: tuple[pa.RecordBatch, Consumer, pa.RecordBatch] | None = None
        self._skipped = 0
        self._look_at = 0.0
        try:
            self._look(start)
        except BaseException:
            self._closed = True
            self._end()
            raise

    def __repr__(self) -> str:
        group = "" if self._group is None else f" in group {self._group!r}"
        state = "closed" if self._closed else f"reading {len(self.assignment)} partitions"
        return f"<headrace.TopicsConsumer of {self._topics}{group} ({state})>"

    # Topics

    def _look(self, start: Start) -> None:
        """Open consumers of topics that are not read yet."""
        self._look_at = time.monotonic() + _LOOK_SECONDS
        existing = [] if self._topics.pattern is None else self._calls(ListTopics("*"))
        for topic_index, topic in enumerate(sorted(self._topics.among(existing), key=topic_key)):
            if topic not in self._consumers:
                try:
                    consumer = self._consumers[topic] = self._open(topic, start, topic_index)
                except _GONE:
                    self._drop(topic)
                    continue
                self._turns.append(topic)
                if self._closed:
                    # By another thread, which may have closed only those before.
                    consumer.close()
                    return

    def _open(self, topic: str, start: Start, topic_index: int) -> Consumer:
        def named(callback: PartitionsChanged) -> PartitionsChanged:
            return lambda partitions: callback([TopicPartition(topic, partition) for partition in partitions])

        callbacks = Callbacks(*map(named, self._callbacks))
        member = None if self._group is None else self._member
        return Consumer(
            self._transport,
            topic,
            self._settings,
            self._group,
            start,
            member,
            callbacks=callbacks,
            part=ConsumerPart(self._wake, self._heartbeats, topic_index),
        )

    def _drop(self, topic: str) -> None:
        """A topic that was deleted: those of a pattern are left out, those of a list are missed."""
        if self._topics.pattern is None:
            raise
        consumer = self._consumers.pop(topic, None)
        if consumer is not None:
            self._turns.remove(topic)
            self._skipped += consumer.skipped
            consumer._end()

    # Reading

    def _take(self, max_messages: int, timeout: float | None) -> pa.RecordBatch:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_stopped:
            self._is_awoken = False
            # Those whose turn is later stay in their groups too, and let go what they must.
            for topic, consumer in list(self._consumers.items()):
                self._ask(topic, consumer.keep_up)
            for topic in list(self._turns):
                if topic not in self._consumers:
                    continue
                # To the end of the line: the next take begins with another topic.
                self._turns.rotate(-1)
                consumer = self._consumers[topic]
                batch = self._ask(topic, partial(consumer.take, max_messages, 0.0))
                if batch is not None and batch.num_rows:
                    self._taken = _with_topic(batch, topic), consumer, batch
                    return self._taken[0]
            now = time.monotonic()
            if self._topics.pattern is not None and now >= self._look_at:
                self._look("earliest")
            if deadline is not None and now >= deadline:
                break
            self._wait(_least(deadline, self._look_at if self._topics.pattern is not None else None, now))
        return _NO_ROWS

    def _ask(self, topic: str, question: Callable[[], Answer]) -> Answer | None:
        """What the consumer of a topic answers; None if the topic of a pattern was deleted."""
        try:
            return question()
        except _GONE:
            self._drop(topic)
            return None

    def _wait(self, seconds: float) -> None:
        with self._changed:
            if not self._is_awoken:
                self._changed.wait(seconds)

    def _is_disturbed(self) -> bool:
        """Whether another topic is waiting for the loop to poll; a message read in the loop counts as a poll of all."""
        now = time.monotonic()
        if now - self._polled_at < _POLLED_SECONDS:
            return False
        self._polled_at = now
        for consumer in self._consumers.values():
            consumer.polled()
        return any(consumer.has_changed for consumer in self._consumers.values())

    def is_next(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch that was taken is still what comes next."""
        taken = self._taken
        return taken is not None and taken[0] is batch and taken[1].is_next(taken[2])

    def give(self, batch: pa.RecordBatch) -> None:
        """A batch that was taken is given out as a whole."""
        if batch.num_rows:
            consumer, plain = self._source(batch)
            consumer.give(plain)

    def one_by_one(self, batch: pa.RecordBatch) -> Iterator[Message]:
        """The messages of a batch that was taken, given out as they are reached."""
        if batch.num_rows:
            consumer, plain = self._source(batch)
            for message in consumer.one_by_one(plain):
                yield message
                if self._stopped or self._is_disturbed():
                    return

    def _source(self, batch: pa.RecordBatch) -> tuple[Consumer, pa.RecordBatch]:
        return self._consumers[batch.column("topic")[0].as_py()], batch.drop_columns(["topic"])

    @property
    def skipped(self) -> int:
        """The number of messages that were skipped because their values cannot be decoded."""
        return self._skipped + sum(consumer.skipped for consumer in self._consumers.values())

    # Positions

    @property
    def topics(self) -> list[str]:
        """The topics that are read."""
        return sorted(self._consumers)

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to return, by topic and partition."""
        return {
            TopicPartition(topic, partition): offset
            for topic, consumer in sorted(self._consumers.items())
            for partition, offset in consumer.positions().items()
        }

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, with their topics."""
        return sorted(self.positions())

    @property
    def generation(self) -> int | None:
        """None: each topic's group has generations of its own."""
        return None

    def seek(self, to: Start | Mapping[Any, int]) -> None:
        """Continue at "earliest", "latest", an offset, a time, or offsets by topic and partition."""
        fork.check(self._generation, "this consumer")
        if isinstance(to, Mapping):
            for topic, offsets in self._by_topic(to).items():
                self._consumers[topic].seek(offsets)
        else:
            for consumer in self._consumers.values():
                consumer.seek(to)

    def _commit(self, offsets: Mapping[TopicPartition, int] | None) -> list[TopicPartition]:
        wanted = dict.fromkeys(self._consumers) if offsets is None else self._by_topic(offsets)
        return [
            TopicPartition(topic, partition)
            for topic, given in sorted(wanted.items())
            for partition in self._ask(topic, partial(self._consumers[topic].commit, given)) or []
        ]

    def _uncommitted(self) -> list[TransactionOffsets]:
        return [each for _, consumer in sorted(self._consumers.items()) for each in consumer.uncommitted()]

    def was_committed(self, offsets: Iterable[TransactionOffsets]) -> None:
        """A transaction has committed this."""
        for each in offsets:
            if each.topic in self._consumers:
                self._consumers[each.topic].was_committed([each])

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Return no messages of these partitions, or of all, until they are resumed; they stay assigned."""
        for topic, named in self._by_topic(dict.fromkeys(self._named(partitions), 0)).items():
            self._consumers[topic].pause(named)

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue with these partitions, or with all, where they were paused."""
        for topic, named in self._by_topic(dict.fromkeys(self._named(partitions), 0)).items():
            self._consumers[topic].resume(named)

    @property
    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        return [TopicPartition(topic, each) for topic in self.topics for each in self._consumers[topic].paused]

    def _named(self, partitions: Iterable[TopicPartition] | None) -> Iterable[TopicPartition]:
        return self.assignment if partitions is None else partitions

    def _by_topic(self, offsets: Mapping[Any, int]) -> dict[str, dict[int, int]]:
        """Offsets by topic and partition as offsets of each topic, whatever the case of its name."""
        read = {topic_key(topic): topic for topic in self._consumers}
        sorted_: dict[str, dict[int, int]] = {}
        for place, offset in offsets.items():
            topic = read.get(topic_key(place[0])) if isinstance(place, tuple) and len(place) == 2 else None
            if topic is None:
                raise InvalidInput("partition", repr(place)[:100], f"name it by topic and number, of {self.topics}")
            sorted_.setdefault(topic, {})[place[1]] = offset
        return sorted_

    # Ending

    def _wake(self) -> None:
        with self._changed:
            self._is_awoken = True
            self._changed.notify_all()

    def _finish(self) -> None:
        """Each of them does it when it is closed."""

    def _end(self) -> None:
        """Close all of them, whatever becomes of one; then raise the first error."""
        self._wake()
        errors: list[HeadraceError] = []
        for consumer in list(self._consumers.values()):
            try:
                consumer.close()
            except HeadraceError as error:
                if self._topics.pattern is None or not isinstance(error, _GONE):
                    errors.append(error)
        if errors:
            raise errors[0]


def check_several(partitions: object, consumer_index: object) -> None:
    """Refuse what needs a consumer of one topic."""
    for field, value in (("partitions", partitions), ("consumer_index", consumer_index)):
        if value is not None:
            raise InvalidInput(field, repr(value)[:100], "it needs a consumer of one topic")


def _with_topic(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    names = repeated(topic, batch.num_rows)
    return batch.append_column(pa.field("topic", pa.string(), nullable=False), names)


def _least(deadline: float | None, look_at: float | None, now: float) -> float:
    """The seconds until the first of some times, at most the longest wait."""
    times = [each for each in (deadline, look_at) if each is not None]
    return max(0.0, min([*times, now + _WAIT_SECONDS_MAX]) - now)

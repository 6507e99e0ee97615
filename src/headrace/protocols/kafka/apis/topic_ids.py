"""Topic ids as Kafka has them, and the topics that a request names, by name or id.

Another topic of the same name has another id. An id is our number behind a fixed prefix, so anyone can count them: one
of a topic that the caller may not see is unknown to it, exactly as one that no topic has.

Everything here may block while a shared store is asked, except what is `known`.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from headrace.broker import Broker
from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import IdNotFound, TopicNotFound
from headrace.core.rights import Caller

_PREFIX: Final = 0x68656164_72616365 << 64
_ID_MAX: Final = (1 << 64) - 1
# A lookup asks a shared store about so many unknown topics one by one, and then once about all.
_ASKED_ALONE_MAX: Final = 16
# More topics than this are looked up in a thread.
_QUICK_MAX: Final = 100

# How a request names a topic: by name, or by id in the newest versions. No topic has the id of zeros.
TopicRef = str | UUID
NO_TOPIC: Final = UUID(int=0)


def topic_uuid(topic_id: int) -> UUID:
    """The id of a topic as clients see it."""
    return UUID(int=_PREFIX | topic_id)


def ref_of(topic: Any) -> TopicRef:
    """How a request names a topic: by its name, if it gives one."""
    name = getattr(topic, "name", None)
    ref: TopicRef = (topic.topic_id or NO_TOPIC) if name is None else name
    return ref


def known_name(broker: Broker, topic: UUID) -> str | None:
    """The name of a topic, if it is known without blocking."""
    return broker.known_topic_name(_number(topic)) if _is_ours(topic) else None


def topic_name(broker: Broker, topic: UUID | None) -> str:
    """The name of a topic, whoever asks."""
    if topic is None or not _is_ours(topic):
        raise unknown_id(topic)
    return broker.topic_name(_number(topic))


def seen_name(broker: Broker, caller: Caller, ref: TopicRef) -> str:
    """The name of a topic, however a request names it; an id must be of one that the caller may see."""
    return TopicLookup(broker, caller).name(ref)


def unknown_id(topic: UUID | None) -> IdNotFound:
    """No topic that the caller may see has this id."""
    return IdNotFound("topic", str(topic), "no topic has this id: it was deleted, or is of another cluster")


def topic_number(topic: UUID | None) -> int | None:
    """Our number of a topic; None if the id cannot be one of ours."""
    return _number(topic) if topic is not None and _is_ours(topic) else None


class TopicLookup:
    """Finds the topics that one request of one caller names, thousands of unknown ones as fast as known ones."""

    def __init__(self, broker: Broker, caller: Caller) -> None:
        self._broker = broker
        self._caller = caller
        self._asked = 0
        self._knows_all = False

    def is_quick(self, refs: Collection[TopicRef]) -> bool:
        """Whether these topics, which are all of the request, are few and found without blocking."""
        self._knows_all = len(refs) <= _QUICK_MAX and all(map(self._is_known, refs))
        return self._knows_all

    def is_named(self, ref: TopicRef) -> bool:
        """Whether `name` would not block."""
        return isinstance(ref, str) or not _is_ours(ref) or known_name(self._broker, ref) is not None

    def name(self, ref: TopicRef) -> str:
        """The name of a topic; an id must be of one that the caller may see."""
        if isinstance(ref, str):
            return ref
        name = known_name(self._broker, ref)
        if name is None and _is_ours(ref):
            name = self._asked_name(ref) if self._may_ask() else known_name(self._broker, ref)
        if name is None or not self._caller.may_see(name):
            raise unknown_id(ref)
        return name

    def reader(self, name: str) -> TopicReader:
        """A reader of a topic."""
        knows = self._broker.knows_topic
        if self._knows_all or knows(name) or self._may_ask() or knows(name):
            return self._broker.reader(name)
        raise TopicNotFound(name)

    def _asked_name(self, ref: UUID) -> str | None:
        with suppress(IdNotFound):
            return topic_name(self._broker, ref)
        return None

    def _is_known(self, ref: TopicRef) -> bool:
        return self.is_named(ref) and (not isinstance(ref, str) or self._broker.knows_topic(ref))

    def _may_ask(self) -> bool:
        """Whether the store may be asked about one more topic; before it may not, all topics are read."""
        self._asked += 1
        if self._asked == _ASKED_ALONE_MAX:
            self._broker.list_topics()
        return self._asked < _ASKED_ALONE_MAX


def _is_ours(topic: UUID) -> bool:
    return topic.int & ~_ID_MAX == _PREFIX


def _number(topic: UUID) -> int:
    return topic.int & _ID_MAX

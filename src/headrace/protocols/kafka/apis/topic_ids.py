"""Topic ids as Kafka has them: another topic of the same name has another one. An id is ours behind a fixed prefix."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from headrace.broker import Broker
from headrace.core.errors import IdNotFound

_PREFIX: Final = 0x68656164_72616365 << 64
_ID_MAX: Final = (1 << 64) - 1

# How a request names a topic: by name, or by id in the newest versions. No topic has the id of zeros.
TopicRef = str | UUID
NO_TOPIC: Final = UUID(int=0)


def topic_uuid(topic_id: int) -> UUID:
    """The id of a topic as clients see it."""
    return UUID(int=_PREFIX | topic_id)


def known_name(broker: Broker, topic: UUID) -> str | None:
    """The name of a topic, if it is known without blocking."""
    return broker.known_topic_name(_number(topic)) if _is_ours(topic) else None


def topic_name(broker: Broker, topic: UUID | None) -> str:
    """The name of a topic; blocks while a shared store is asked."""
    if topic is None or not _is_ours(topic):
        raise unknown_id(topic)
    return broker.topic_name(_number(topic))


def ref_of(topic: Any) -> TopicRef:
    """How a request names a topic."""
    ref: TopicRef = topic.name if hasattr(topic, "name") else topic.topic_id or NO_TOPIC
    return ref


def name_of(broker: Broker, ref: TopicRef) -> str:
    """The name of a topic, however a request names it; blocks as `topic_name` does."""
    return ref if isinstance(ref, str) else topic_name(broker, ref)


def unknown_id(topic: UUID | None) -> IdNotFound:
    """No topic that the caller may see has this id."""
    return IdNotFound("topic", str(topic), "no topic has this id: it was deleted, or is of another cluster")


def topic_number(topic: UUID | None) -> int | None:
    """Our number of a topic; None if the id cannot be one of ours."""
    return _number(topic) if topic is not None and _is_ours(topic) else None


def _is_ours(topic: UUID) -> bool:
    return topic.int & ~_ID_MAX == _PREFIX


def _number(topic: UUID) -> int:
    return topic.int & _ID_MAX

"""Topic ids as Kafka has them: another topic of the same name has another one. An id is ours behind a fixed prefix."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from headrace.broker import Broker
from headrace.core.errors import IdNotFound

_PREFIX: Final = 0x68656164_72616365 << 64
_ID_MAX: Final = (1 << 64) - 1


def topic_uuid(topic_id: int) -> UUID:
    """The id of a topic as clients see it."""
    return UUID(int=_PREFIX | topic_id)


def known_name(broker: Broker, topic: UUID) -> str | None:
    """The name of a topic, if it is known without blocking."""
    return broker.known_topic_name(_number(topic)) if _is_ours(topic) else None


def topic_name(broker: Broker, topic: UUID | None) -> str:
    """The name of a topic; blocks while a shared store is asked."""
    if topic is None or not _is_ours(topic):
        raise IdNotFound("topic", str(topic), "no topic has this id: it was deleted, or is of another cluster")
    return broker.topic_name(_number(topic))


def topic_number(topic: UUID | None) -> int | None:
    """Our number of a topic; None if the id cannot be one of ours."""
    return _number(topic) if topic is not None and _is_ours(topic) else None


def _is_ours(topic: UUID) -> bool:
    return topic.int & ~_ID_MAX == _PREFIX


def _number(topic: UUID) -> int:
    return topic.int & _ID_MAX

"""Where reading starts and ends, as options name it: for all topics, by partition, or by topic.

The grammar of a position is that of `headrace.core.positions`. What is added here is a position for each topic, as
Spark's Kafka connector writes it, and that the options of times take times only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.names import topic_key
from headrace.core.positions import PerPartition, Position, parse_position, parse_time
from headrace.spark.reader.topic_selection import PerTopic, TopicSelection


def place_of(
    offsets_name: str, offsets: str | None, time_name: str, time: str | None, topics: TopicSelection
) -> Position | PerTopic | None:
    """The place that one of two options names, or None if neither is given."""
    if time is not None:
        return _by_topic(time_name, time, topics, _times)
    return None if offsets is None else _by_topic(offsets_name, offsets, topics, parse_position)


def _is_json(text: str) -> bool:
    return text.strip().startswith("{")


def _by_topic(
    field: str, text: str, topics: TopicSelection, parse: Callable[[str, str], Position]
) -> Position | PerTopic:
    """A position for all topics, or one for each topic named."""
    if not _is_json(text):
        return parse(field, text)
    try:
        given = msgspec.json.decode(text, type=dict[str, dict[str, Any] | str | int])
    except msgspec.DecodeError:
        given = {}
    if all(name.isdecimal() and not isinstance(position, dict) for name, position in given.items()):
        return parse(field, text)
    for name in given:
        if not topics.selects(name):
            raise InvalidInput(field, repr(name)[:100], "it is not one of the topics that are read")
    return PerTopic({topic_key(name): parse(field, _text(position)) for name, position in given.items()})


def _text(position: dict[str, Any] | str | int) -> str:
    return msgspec.json.encode(position).decode() if isinstance(position, dict) else str(position)


def _times(field: str, text: str) -> Position:
    """A time, or one for each partition named."""
    if not _is_json(text):
        return parse_time(field, text)
    try:
        given = msgspec.json.decode(text, type=dict[int, str | int])
    except msgspec.DecodeError:
        rule = (
            'it must be a time, or a time by partition such as {"0": "2026-07-01T12:00:00Z"}, or these by topic: '
            '{"orders": {"0": "2026-07-01T12:00:00Z"}}'
        )
        raise InvalidInput(field, repr(text)[:100], rule) from None
    return PerPartition(tuple(sorted((partition, parse_time(field, str(time))) for partition, time in given.items())))

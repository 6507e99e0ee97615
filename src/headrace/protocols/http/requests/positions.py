"""Positions: the next offset to read by partition, as JSON, in queries and in the ids of events.

As text they are `partition:offset` pairs separated by commas, `0:17,3:4`. The id of an event starts with the number of
the topic, `12;0:17,3:4`, so that it does not fit a later topic of the same name. A partition that an id does not name
is at its beginning: partitions added later are read from their start. Ids of what a member gets have the generation of
its group too, `12.7;0:17`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import PARTITIONS_MAX, SEQNO_MAX
from headrace.core.positions import format_pairs, parse_pairs, unique

_EVENT_ID: Final = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,18}))?;([0-9:,]*)", re.ASCII)

PartitionNumber = Annotated[int, msgspec.Meta(ge=0, lt=PARTITIONS_MAX, description="a partition's number")]
Offset = Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX, description="the next offset to read")]


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The next offset to read of a partition."""

    partition: PartitionNumber
    offset: Offset


Positions = Annotated[list[Position], msgspec.Meta(max_length=PARTITIONS_MAX)]


def listed(positions: Mapping[int, int]) -> list[Position]:
    """Positions as JSON has them, by partition."""
    return [Position(partition, positions[partition]) for partition in sorted(positions)]


def mapped(field: str, positions: Iterable[Position]) -> dict[int, int]:
    """Positions by partition, each partition once."""
    return unique(field, [(position.partition, position.offset) for position in positions])


class EventPlace(NamedTuple):
    """The topic's number, the generation of the group if a member got the event, and the positions after it."""

    topic_id: int
    generation: int | None
    positions: dict[int, int]


def parse_event_id(text: str) -> EventPlace:
    """What the id of an event says."""
    match = _EVENT_ID.fullmatch(text)
    if match is None:
        raise InvalidInput("Last-Event-ID", ascii(text[:100]), "it must be the id of an event of this topic")
    topic_id, generation, pairs = match.groups()
    positions = parse_pairs("Last-Event-ID", pairs) if pairs else {}
    return EventPlace(int(topic_id), None if generation is None else int(generation), positions)


def format_event_id(topic_id: int, positions: Mapping[int, int], generation: int | None = None) -> str:
    """The id of an event that ends at these positions; those at the very beginning are omitted."""
    head = f"{topic_id}" if generation is None else f"{topic_id}.{generation}"
    return f"{head};{format_pairs({name: offset for name, offset in positions.items() if offset})}"

"""Positions: the next offset to read by partition, as JSON, in queries and in the ids of events.

As text they are `partition:offset` pairs separated by commas, `0:17,3:4`. The id of an event starts with the number of
the topic, `12;0:17,3:4`, so that it does not fit a later topic of the same name. A partition that an id does not name
is at its beginning: partitions added later are read from their start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from headrace.core.errors import InvalidInput
from headrace.core.limits import PARTITIONS_MAX, SEQNO_MAX
from headrace.core.positions import format_pairs, parse_pairs, unique

_EVENT_ID: Final = re.compile(r"([0-9]{1,19});([0-9:,]*)", re.ASCII)

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


def parse_event_id(text: str) -> tuple[int, dict[int, int]]:
    """The topic's number and the positions after an event."""
    match = _EVENT_ID.fullmatch(text)
    if match is None:
        raise InvalidInput("Last-Event-ID", ascii(text[:100]), "it must be the id of an event of this topic")
    return int(match[1]), parse_pairs("Last-Event-ID", match[2]) if match[2] else {}


def format_event_id(topic_id: int, positions: Mapping[int, int]) -> str:
    """The id of an event that ends at these positions; those at the very beginning are omitted."""
    return f"{topic_id};{format_pairs({name: offset for name, offset in positions.items() if offset})}"

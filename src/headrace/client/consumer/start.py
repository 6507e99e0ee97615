"""Where reading begins: at the oldest message, at the end, at an offset, or at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

from headrace.client.message import microseconds
from headrace.client.retry import Calls
from headrace.core.errors import InvalidInput
from headrace.core.groups.group import ReadFrom
from headrace.wire.operations import OffsetAt, Offsets

Start = Literal["earliest", "latest"] | int | datetime | Mapping[int, int]


def check_start(start: object) -> Start:
    """A valid beginning; a whole number is an offset, the same in every partition."""
    if start == "earliest" or start == "latest" or isinstance(start, datetime | Mapping):
        return start
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return start
    rule = "it must be 'earliest', 'latest', an offset, a datetime, or offsets by partition"
    raise InvalidInput("start", repr(start)[:100], rule)


def read_from(start: Start) -> ReadFrom:
    """Where a new group begins; one whose reader begins at offsets has the rest of it from the oldest on."""
    if isinstance(start, datetime):
        return microseconds(start)
    return "latest" if start == "latest" else "earliest"


def positions_at(calls: Calls, topic: str, start: Start, partitions: Iterable[int] | None = None) -> dict[int, int]:
    """The positions at which reading begins, for some partitions, else for all."""
    offsets: dict[int, tuple[int, int]] = calls(Offsets(topic))
    chosen = sorted(offsets) if partitions is None else list(partitions)
    if isinstance(start, datetime):
        time_us = microseconds(start)
        return {partition: calls(OffsetAt(topic, partition, time_us)) for partition in chosen}
    if isinstance(start, Mapping):
        return {partition: start.get(partition, offsets.get(partition, (0, 0))[0]) for partition in chosen}
    if isinstance(start, int):
        return dict.fromkeys(chosen, start)
    return {partition: offsets[partition][0 if start == "earliest" else 1] for partition in chosen}

"""Where a command starts to read. `core.positions` has the grammar; this adds the clock and the error messages."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from headrace.cli.exits import Exit, Failure
from headrace.cli.terminal.output import print_note
from headrace.core.errors import InvalidInput, PartitionNotFound
from headrace.core.positions import (
    EARLIEST,
    AtTime,
    Bounds,
    Earliest,
    Latest,
    Position,
    moment,
    parse_position,
    read_from,
    resolve,
)

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.core.groups.group import ReadFrom


def parse_from(text: str, option: str = "--from") -> Position:
    """Parse the position given by an option."""
    try:
        return parse_position(option, text, time.time_ns() // 1000)
    except InvalidInput as error:
        raise Failure(Exit.USAGE, str(error)) from None


def group_start(position: Position) -> ReadFrom:
    """Where a new group starts, for a position given by --from."""
    if not isinstance(position, Earliest | Latest | AtTime):
        rule = "a group starts at earliest, latest or a time; move it later with `headrace group seek`"
        raise Failure(Exit.USAGE, f"--from: {rule}")
    return read_from(position)


def offsets_at(
    client: Client, topic: str, position: Position, bounds: Bounds, option: str = "--from"
) -> dict[int, int]:
    """The offset of each partition at a position, clamped to the messages that exist."""
    try:
        offsets = resolve(
            option, position, bounds, EARLIEST, lambda us, chosen: client.offsets_at(topic, moment(us), chosen)
        )
    except InvalidInput as error:
        raise Failure(Exit.REFUSED, str(error)) from None
    for partition, offset in offsets.items():
        start, end = bounds[partition]
        if offset < start:
            print_note(f"partition {partition} of {topic} now starts at offset {start}, not {offset}")
        offsets[partition] = min(max(start, offset), end)
    return offsets


def chosen_partitions(topic: str, partitions: Iterable[int], known: Collection[int]) -> list[int]:
    """The requested partitions, which must exist; all if none were requested."""
    chosen = list(partitions) or list(known)
    for partition in chosen:
        if partition not in known:
            raise Failure(Exit.REFUSED, str(PartitionNotFound(topic, partition, len(known))))
    return chosen

"""Where reading starts, resolved against the offsets that the server reports. `core.positions` has the grammar."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime

from headrace.client.retry import Calls
from headrace.core.errors import PartitionNotFound
from headrace.core.positions import EARLIEST, Position, position_of, resolve
from headrace.wire.operations import Offsets, OffsetsAt

# `earliest`, `latest`, an offset, -N, a time as text or datetime, or offsets by partition.
Start = str | int | datetime | Mapping[int, int]


def parse_start(start: Start, field: str = "start") -> Position:
    """The position that a caller names."""
    return position_of(field, start, time.time_ns() // 1000 if isinstance(start, str) else None)


def positions_at(calls: Calls, topic: str, start: Position, partitions: Iterable[int] | None = None) -> dict[int, int]:
    """The offsets at which reading starts, for some or all partitions."""
    bounds: dict[int, tuple[int, int]] = calls(Offsets(topic))
    if partitions is not None:
        chosen = list(partitions)
        for partition in chosen:
            if partition not in bounds:
                raise PartitionNotFound(topic, partition, len(bounds))
        bounds = {partition: bounds[partition] for partition in chosen}
    return resolve("start", start, bounds, EARLIEST, lambda us, chosen: calls(OffsetsAt(topic, us, chosen)))

"""Limits of reads: the first messages that fit, and many partitions that share a limit, read one after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.core.messages import content_bytes, message_sizes


class ReadableLog(Protocol):
    """What is needed of a log."""

    def read(self, partition: int, offset: int, messages_max: int, bytes_max: int) -> pa.RecordBatch: ...

    def time_of(self, partition: int, offset: int) -> int | None: ...


def read_each(
    log: ReadableLog, positions: Mapping[int, int], messages_max: int, bytes_max: int
) -> list[pa.RecordBatch]:
    """Each partition its share of the limits, at least one message, the one whose next message is oldest first."""
    times = {partition: log.time_of(partition, offset) or 0 for partition, offset in positions.items()}
    share = max(1, messages_max // max(1, len(positions))), max(1, bytes_max // max(1, len(positions)))
    batches: list[pa.RecordBatch] = []
    for partition in sorted(times, key=lambda partition: times[partition]):
        if messages_max <= 0 or bytes_max <= 0:
            break
        batch = log.read(partition, positions[partition], min(share[0], messages_max), min(share[1], bytes_max))
        if batch.num_rows:
            batches.append(batch)
        messages_max -= batch.num_rows
        bytes_max -= content_bytes(batch)
    return batches


def within_bytes(batch: pa.RecordBatch, bytes_max: int) -> pa.RecordBatch:
    """The first messages that fit, at least one."""
    if content_bytes(batch) <= bytes_max:
        return batch
    sizes = message_sizes(batch.column("value"), batch.column("key"), batch.column("attributes"))
    return batch.slice(0, max(1, int(np.searchsorted(np.cumsum(sizes), bytes_max, side="right"))))

"""Reads ranges of many partitions in the order in which they were written, as a scan of a whole topic needs them.

`gather` serves readers that follow: each partition gets its share, the oldest first, a batch for each. A scan wants
all of its ranges anyway. So entries are taken frame by frame, every frame is decoded about once however many partitions
have rows in it, and the rows of all partitions are one batch. Nothing here is done once per partition in Python.

Stateless, so as thread-safe as the segments. What is not dense, because frames are damaged or were dropped meanwhile,
is not read here: None says that reading each partition will raise the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from headrace.core.hashes.columns import Int64s
from headrace.storage.disk.files.segment import Segment
from headrace.storage.disk.gather import (
    Entries,
    begins_of,
    damaged_frames,
    entries_of,
    joined,
    may_hold,
    read_entries,
    running,
)
from headrace.storage.shares import within_bytes


def scan_ranges(
    segments: Sequence[Segment],
    log_end: Int64s,
    start: Int64s,
    stop: Int64s,
    messages_max: int,
    bytes_max: int,
    touch: Callable[[Segment], None],
) -> pa.RecordBatch | None:
    """The oldest messages from `start` up to `stop`, both by partition, within the limits but at least one.

    log_end: the end offsets of all partitions, at least those of `stop`.
    """
    wanted = [place for place in range(len(segments)) if may_hold(segments, place, log_end, start, stop)]
    if not wanted:
        return None
    found = _oldest(segments, wanted, start, stop, messages_max, bytes_max)
    chosen = _within_limits(found, messages_max, bytes_max)
    if not len(chosen) or not _is_dense(chosen, start) or len(damaged_frames(chosen, segments)):
        return None
    return within_bytes(read_entries(chosen, segments, touch), bytes_max)


def _oldest(
    segments: Sequence[Segment], wanted: Sequence[int], start: Int64s, stop: Int64s, messages_max: int, bytes_max: int
) -> Entries:
    """The entries of as many segments as the limits need, in the order written."""
    parts: list[Entries] = []
    rows, size = 0, 0.0
    for place in wanted:
        found = entries_of(segments[place], place, start, stop)
        parts.append(found.pick(np.lexsort((found.first_row, found.frame))))
        rows += int(found.rows.sum())
        size += float((found.rows * found.row_bytes).sum())
        if rows >= messages_max or size >= bytes_max:
            break
    return joined(parts)


def _within_limits(found: Entries, messages_max: int, bytes_max: int) -> Entries:
    size = found.rows * found.row_bytes
    rows_before, bytes_before = np.cumsum(found.rows) - found.rows, np.cumsum(size) - size
    chosen = found.pick(np.flatnonzero((rows_before < messages_max) & (bytes_before < bytes_max)))
    chosen.rows[-1:] -= max(0, int(chosen.rows.sum()) - messages_max)
    return chosen


def _is_dense(chosen: Entries, start: Int64s) -> bool:
    """Whether the entries of each partition follow each other from its start on."""
    order = np.argsort(chosen.partition, kind="stable")
    partition, first, rows = chosen.partition[order], chosen.first_offset[order], chosen.rows[order]
    return bool(np.array_equal(first, start[partition] + running(rows, begins_of(partition))))

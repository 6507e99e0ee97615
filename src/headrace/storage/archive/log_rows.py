"""The rows of a log in the order of a file: by partition and offset, on whole columns and in bounded memory.

Partitions with many rows are read one after another. Small ones are read together: the log decodes each frame once for
all of them. If they turn out to be larger than a row group, half of them are read at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from headrace.core.archive.plan import Span
from headrace.core.limits import ARCHIVE_GROUP_BYTES, ARCHIVE_GROUP_ROWS
from headrace.storage.interface import TopicLog


def rows_of(log: TopicLog, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
    """The rows of spans, which are sorted."""
    together: list[Span] = []
    rows = 0
    for span in spans:
        if not span.has_rows:
            continue
        size = span.end_offset - span.first_offset
        is_next_of_same = bool(together) and together[-1].partition == span.partition
        if together and (rows + size > ARCHIVE_GROUP_ROWS or is_next_of_same):
            yield from _read(log, together)
            together, rows = [], 0
        together.append(span)
        rows += size
    yield from _read(log, together)


def _read(log: TopicLog, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
    if len(spans) > 1:
        found = _read_together(log, spans)
        if found is not None:
            yield from found
            return
        middle = len(spans) // 2
        yield from _read(log, spans[:middle])
        yield from _read(log, spans[middle:])
    for span in spans if len(spans) == 1 else ():
        position = span.first_offset
        while position < span.end_offset:
            count = min(ARCHIVE_GROUP_ROWS, span.end_offset - position)
            batch = log.read(span.partition, position, count, ARCHIVE_GROUP_BYTES)
            position += batch.num_rows
            yield batch


def _read_together(log: TopicLog, spans: Sequence[Span]) -> list[pa.RecordBatch] | None:
    """The rows of several partitions, or None if they are too many bytes at once, or one cannot be read with others."""
    ends = {span.partition: span.end_offset for span in spans}
    positions = {span.partition: span.first_offset for span in spans}
    parts: dict[int, list[pa.RecordBatch]] = {number: [] for number in positions}
    bytes_left = ARCHIVE_GROUP_BYTES
    while positions:
        batches = log.read_many(positions, ARCHIVE_GROUP_ROWS, bytes_left)
        for batch in batches:
            number = batch.column("partition")[0].as_py()
            rows = batch.slice(0, ends[number] - positions[number])
            parts[number].append(rows)
            bytes_left -= rows.nbytes
            positions[number] += rows.num_rows
        if not batches or bytes_left <= 0:
            return None
        positions = {number: offset for number, offset in positions.items() if offset < ends[number]}
    return [batch for number in sorted(parts) for batch in parts[number]]

"""Finds where a message is by its source and seqno, looking back from the end of its partition.

There is no index of seqnos. A producer that sends again what it sent a moment ago asks for one of the last messages, so
the search reads back in parts that grow. It ends at the message, at one of its source that is older, or at a limit.
Blocks; thread-safe.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.broker.topics.topic import Topic
from headrace.core.errors import Damaged, OffsetOutOfRange
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import FETCH_BYTES_DEFAULT, SEQNO_SEARCH_BYTES, SEQNO_SEARCH_MESSAGES
from headrace.core.messages import content_bytes
from headrace.core.publish.sources import Source
from headrace.storage.ranges import OffsetRange

_FIRST_MESSAGES: Final = 16
_GROWTH: Final = 4


def find_seqno(topic: Topic, partition: int, source: Source, seqno: int) -> int | None:
    """The offset of a message; None if it was deleted, or is further back than the limits of a search."""
    offsets = topic.offsets()
    end = stop = int(offsets.end[partition])
    oldest = max(int(offsets.start[partition]), end - SEQNO_SEARCH_MESSAGES)
    messages, bytes_read = _FIRST_MESSAGES, 0
    while stop > oldest and messages > 0:
        start = max(oldest, stop - messages)
        try:
            parts = _read(topic, offsets, partition, start, stop)
        except (OffsetOutOfRange, Damaged):
            # Deleted meanwhile, or not readable: nobody can tell where it is.
            return None
        for batch in reversed(parts):
            rows = _rows_of(batch, source)
            numbers = np.asarray(batch.column("seqno").take(pa.array(rows)))
            found = rows[numbers == seqno]
            if len(found):
                return int(batch.column("offset")[int(found[-1])].as_py())
            if (numbers < seqno).any():
                return None
        stop = start
        bytes_read += sum(map(content_bytes, parts))
        affordable = (SEQNO_SEARCH_BYTES - bytes_read) * (end - stop) // max(1, bytes_read)
        messages = min(messages * _GROWTH, affordable)
    return None


def _read(topic: Topic, offsets: OffsetRange, partition: int, start: int, stop: int) -> list[pa.RecordBatch]:
    """The messages of a range of offsets."""
    parts: list[pa.RecordBatch] = []
    with topic.using() as log:
        while (start := offsets.readable(partition, start)) < stop:
            parts.append(log.read(partition, start, stop - start, FETCH_BYTES_DEFAULT))
            start += parts[-1].num_rows
    return parts


def _rows_of(batch: pa.RecordBatch, source: Source) -> Int64s:
    """The rows of a source that have a seqno."""
    producer_id, group_id = source
    is_its = pc.and_(
        pc.equal(batch.column("producer_id"), producer_id),
        pc.equal(pc.fill_null(batch.column("message_group_id"), ""), group_id),
    )
    return np.flatnonzero(np.asarray(pc.fill_null(pc.and_(is_its, batch.column("seqno").is_valid()), False)))

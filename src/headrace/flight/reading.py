"""Reading a partition as a stream of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from headrace.broker import Broker
from headrace.core.errors import InvalidInput
from headrace.core.messages import READ_SCHEMA
from headrace.wire.tickets import Read

# A follower looks so often whether anyone is still there.
_PATIENCE_SECONDS = 0.5


def schema_of(read: Read) -> pa.Schema:
    """The columns that a read gives."""
    if read.columns is None:
        return READ_SCHEMA
    unknown = [name for name in read.columns if name not in READ_SCHEMA.names]
    if unknown or not read.columns:
        raise InvalidInput("columns", repr(read.columns)[:100], f"known are {', '.join(READ_SCHEMA.names)}")
    return pa.schema([READ_SCHEMA.field(name) for name in read.columns])


def batches_of(broker: Broker, read: Read, is_over: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
    """The batches, until the end, or for ever, or until nobody wants them."""
    offset = read.offset
    end = read.end
    if end is None and not read.follow:
        end = broker.offsets(read.topic)[read.partition][1] if read.partition in broker.offsets(read.topic) else None
    while end is None or offset < end:
        count = read.max_messages if end is None else min(read.max_messages, end - offset)
        wait_seconds = _PATIENCE_SECONDS if read.follow else 0.0
        batch = broker.fetch(read.topic, read.partition, offset, count, read.max_bytes, wait_seconds)
        if is_over():
            return
        if batch.num_rows:
            offset += batch.num_rows
            yield batch if read.columns is None else batch.select(read.columns)
        elif not read.follow:
            return

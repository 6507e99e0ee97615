"""Reads as streams of batches: a range of one partition, or many partitions without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from headrace.broker import Broker
from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import Closed, InvalidInput, TopicDeleted
from headrace.core.messages import READ_SCHEMA
from headrace.edge.following import Follower
from headrace.wire.tickets import Follow, Read, Reading

# How often a follower checks whether its client is still connected.
_PATIENCE_SECONDS = 0.5


def schema_of(ticket: Reading) -> pa.Schema:
    """The columns of a read."""
    if isinstance(ticket, Follow) or ticket.columns is None:
        return READ_SCHEMA
    unknown = [name for name in ticket.columns if name not in READ_SCHEMA.names]
    if len(set(ticket.columns)) < len(ticket.columns):
        raise InvalidInput("columns", repr(ticket.columns)[:100], "each column may be given once")
    if unknown or not ticket.columns:
        raise InvalidInput("columns", repr(ticket.columns)[:100], f"known columns are {', '.join(READ_SCHEMA.names)}")
    return pa.schema([READ_SCHEMA.field(name) for name in ticket.columns])


def batches_of(broker: Broker, ticket: Reading, is_over: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
    """The batches, to the end of the range, or without end until the client disconnects."""
    if isinstance(ticket, Follow):
        return _followed(broker, ticket, is_over)
    return _read(broker, ticket, is_over) if ticket.ranges is None else _read_ranges(broker, ticket, is_over)


def without_nulls(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The batches without the columns that are all null in the first, up to one that needs them."""
    first = next(batches, None)
    if first is None:
        return schema, batches
    # A batch without a column would have no length.
    kept = [name for name in schema.names if _has_any(first, name)] or schema.names[:1]
    left_out = [name for name in schema.names if name not in kept]

    def needed() -> Iterator[pa.RecordBatch]:
        for batch in chain([first], batches):
            if any(_has_any(batch, name) for name in left_out):
                return
            yield batch.select(kept)

    return pa.schema([schema.field(name) for name in kept]), needed()


def _has_any(batch: pa.RecordBatch, name: str) -> bool:
    return bool(batch.column(name).null_count < batch.num_rows)


def _read(broker: Broker, read: Read, is_over: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
    offset, end = read.offset, read.end
    _check_id(broker.reader(read.topic), read)
    if end is None and not read.follow:
        end = broker.offsets(read.topic).get(read.partition, (0, offset + 1))[1]
        # A range that does not exist is an error, not an empty answer.
        end = max(end, offset + 1) if offset > end else end
    while end is None or offset < end:
        count = read.max_messages if end is None else min(read.max_messages, end - offset)
        wait_seconds = _PATIENCE_SECONDS if read.follow else 0.0
        batch = broker.fetch(read.topic, read.partition, offset, count, read.max_bytes, wait_seconds)
        if is_over():
            # An error, because the reader would take a plain end for the end of the range.
            raise Closed("the server")
        if batch.num_rows:
            offset += batch.num_rows
            yield batch if read.columns is None else batch.select(read.columns)
        elif not read.follow:
            return


def _read_ranges(broker: Broker, read: Read, is_over: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
    """Rows of many partitions in few batches, each read in one pass over the log; ends early at the end of them."""
    reader, columns = broker.reader(read.topic), read.columns or READ_SCHEMA.names
    _check_id(reader, read)
    ranges = {partition: bounds for partition, bounds in (read.ranges or {}).items() if bounds[0] < bounds[1]}
    reader.check_reached({partition: start for partition, (start, _) in ranges.items()})
    wanted = np.fromiter(ranges, np.int64, len(ranges))
    bounds = np.array(list(ranges.values()), np.int64).reshape(-1, 2)
    ends = reader.offsets().end
    start, stop = np.zeros(len(ends), np.int64), np.zeros(len(ends), np.int64)
    start[wanted], stop[wanted] = bounds[:, 0], np.minimum(bounds[:, 1], ends[wanted])
    while np.any(start < stop):
        batch = reader.read_ranges(start, stop, read.max_messages, read.max_bytes)
        if is_over():
            raise Closed("the server")
        if batch is None:
            return
        yield batch.select(columns)
        # Rows of one partition are in order: the last one counts.
        start[batch.column("partition").to_numpy()] = batch.column("offset").to_numpy() + 1


def _check_id(reader: TopicReader, read: Read) -> None:
    """Raise if another topic has the name of the one to be read."""
    if read.topic_id is not None and reader.topic_id != read.topic_id:
        raise TopicDeleted(reader.name)


def _followed(broker: Broker, follow: Follow, is_over: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
    follower = Follower(broker.reader(follow.topic), follow)
    follower.check()
    with follower.reader.following() as feed:
        while not is_over():
            feed.changed.clear()
            batches = feed.read(follower.positions(), follower.messages_max, follow.max_bytes)
            yield from follower.passed_on(batches)
            if not batches:
                feed.changed.wait(_PATIENCE_SECONDS)

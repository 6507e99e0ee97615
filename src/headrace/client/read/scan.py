"""Reads a range of one partition, with retries when the connection breaks."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import structs

from headrace.client.read.decode import Broken, Decoder, Packed, Passed, Piece
from headrace.client.retry import Backoff
from headrace.client.transport.transport import Transport
from headrace.core.checks import check_whole
from headrace.core.errors import HeadraceError, OffsetOutOfRange, again
from headrace.core.limits import FETCH_BYTES_MAX, FETCH_MESSAGES_MAX
from headrace.core.lists import plain_values
from headrace.core.messages import READ_SCHEMA
from headrace.core.retry import is_transient
from headrace.wire.tickets import Read


def read_batch(
    transport: Transport,
    topic: str,
    partition: int,
    offset: int,
    max_messages: int,
    patience_seconds: float,
    max_bytes: int | None = None,
) -> pa.RecordBatch:
    """The messages from an offset on, up to a limit, as one batch, which may be empty."""
    check_whole("max_messages", max_messages, 1, FETCH_MESSAGES_MAX)
    if max_bytes is not None:
        check_whole("max_bytes", max_bytes, 1, FETCH_BYTES_MAX)
    backoff = Backoff(patience_seconds)
    while True:
        try:
            return _read(transport, _ticket(topic, partition, offset, max_messages, max_bytes), max_messages, max_bytes)
        except HeadraceError as error:
            if not is_transient(error) or not backoff.wait(error):
                raise


def read_decoded(
    transport: Transport,
    decoder: Decoder,
    partition: int,
    offset: int,
    max_messages: int,
    patience_seconds: float,
    max_bytes: int | None = None,
) -> pa.RecordBatch:
    """As `read_batch`, with values decoded; ends before a value that cannot be, and raises where there is no other.

    Where all that was read is skipped, reading continues behind it: an empty batch means there are no more messages.
    If it ended early, the metadata of the batch's schema says why (`STOPPED_EARLY`).
    """
    while True:
        batch = read_batch(transport, decoder.topic, partition, offset, max_messages, patience_seconds, max_bytes)
        pieces = decoder.pieces(batch)
        if isinstance(pieces[0], Broken):
            raise again(pieces[0].error)
        if not isinstance(pieces[0], Passed):
            return pieces[0] if len(pieces) == 1 else _stopped_before(pieces[0], pieces[1])
        offset = pieces[0].positions[partition]


def _stopped_before(batch: pa.RecordBatch, rest: Piece) -> pa.RecordBatch:
    if isinstance(rest, Broken):
        return _stopped(batch, str(rest.error))
    if isinstance(rest, Packed):
        return _stopped(batch, "decoding more would take too much memory at once")
    # What follows was skipped, as asked for.
    return batch


def _stopped(batch: pa.RecordBatch, reason: str) -> pa.RecordBatch:
    return batch.replace_schema_metadata({**(batch.schema.metadata or {}), STOPPED_EARLY: reason})


def _ticket(topic: str, partition: int, offset: int, max_messages: int, max_bytes: int | None) -> Read:
    wanted = Read(topic, partition, offset, offset + max_messages)
    return wanted if max_bytes is None else structs.replace(wanted, max_bytes=max_bytes)


def _read(transport: Transport, ticket: Read, max_messages: int, max_bytes: int | None) -> pa.RecordBatch:
    stream = transport.read(ticket)
    batches: list[pa.RecordBatch] = []
    rows, reason, is_enough = 0, "", False
    try:
        while not is_enough and (batch := stream.read()) is not None:
            batches.append(batch.slice(0, max_messages - rows))
            rows += batches[-1].num_rows
            # The first batch is as large as the limit of bytes allows.
            is_enough = rows >= max_messages or (max_bytes is not None and rows > 0)
    except OffsetOutOfRange as error:
        # A gap follows; a read inside it gets the offset at which to continue.
        if not batches:
            raise
        reason = str(error)
    if is_enough:
        stream.cancel()
    if not batches:
        return NO_ROWS
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return _stopped(whole, reason) if reason else whole


def scan(transport: Transport, ticket: Read, patience_seconds: float) -> Iterator[pa.RecordBatch]:
    """The batches of a range, going on where the connection broke; as patient after every batch that came.

    Columns that a stream leaves out are added as nulls. After a few streams that ended because they left out too much,
    nothing is left out any more.
    """
    backoff, streams = Backoff(patience_seconds), 0
    schema = READ_SCHEMA if ticket.columns is None else _schema_of(ticket.columns)
    while not _is_complete(ticket):
        try:
            stream, is_whole = transport.read(ticket), True
            while (batch := stream.read()) is not None:
                ticket = _after(ticket, batch)
                backoff = Backoff(patience_seconds)
                is_whole = batch.num_columns == len(schema)
                yield batch if is_whole else _with_nulls(batch, schema)
            if is_whole:
                return
            streams += 1
            ticket = structs.replace(ticket, sparse=streams < _SPARSE_STREAMS_MAX)
        except HeadraceError as error:
            if not is_transient(error) or not backoff.wait(error):
                raise


def _is_complete(ticket: Read) -> bool:
    if ticket.ranges is not None:
        return not ticket.ranges
    return ticket.end is not None and ticket.offset >= ticket.end


def _after(ticket: Read, batch: pa.RecordBatch) -> Read:
    """The ticket for what is left."""
    if ticket.ranges is None:
        return structs.replace(ticket, offset=ticket.offset + batch.num_rows)
    return structs.replace(ticket, ranges=remaining(ticket.ranges, batch))


def remaining(ranges: Mapping[int, tuple[int, int]], batch: pa.RecordBatch) -> dict[int, tuple[int, int]]:
    """What is left of ranges by partition after a batch of their rows."""
    left = dict(ranges)
    partitions, counts = np.unique(plain_values(batch.column("partition"), np.int32), return_counts=True)
    for partition, count in zip(partitions.tolist(), counts.tolist(), strict=True):
        start, end = left.pop(partition)
        if start + count < end:
            left[partition] = (start + count, end)
    return left


def _with_nulls(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of the schema, those it lacks as nulls."""
    names, rows = set(batch.schema.names), batch.num_rows
    columns = [batch.column(field.name) if field.name in names else _nulls(field.type, rows) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    """A column of nulls: a part of one that is made once, since making one for each batch costs as much as reading."""
    return _many_nulls(kind).slice(0, rows) if rows <= _NULLS_KEPT else pa.nulls(rows, kind)


@functools.cache
def _many_nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(_NULLS_KEPT, kind)


def _schema_of(columns: list[str]) -> pa.Schema:
    """The schema of the columns asked for; those that are not known the server refuses."""
    return pa.schema([READ_SCHEMA.field(name) for name in columns if name in READ_SCHEMA.names])


# In the metadata of a batch that was read: why it has fewer messages than were asked for and exist.
STOPPED_EARLY: Final = "stopped_early"
_SPARSE_STREAMS_MAX: Final = 8
_NULLS_KEPT: Final = 1 << 16
NO_ROWS: Final = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in READ_SCHEMA], schema=READ_SCHEMA)

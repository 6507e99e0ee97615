"""Reading a range of one partition in one go, again when the connection breaks: reading changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from msgspec import structs

from headrace.client.backoff import Backoff
from headrace.client.transport import Transport
from headrace.core.errors import HeadraceError, InvalidInput, Unreachable
from headrace.core.limits import FETCH_MESSAGES_MAX
from headrace.core.messages import READ_SCHEMA
from headrace.wire.tickets import Read


def read_batch(
    transport: Transport, topic: str, partition: int, offset: int, max_messages: int, patience_seconds: float
) -> pa.RecordBatch:
    """The messages from an offset on, at most so many, as one batch; maybe none."""
    if not isinstance(max_messages, int) or not 1 <= max_messages <= FETCH_MESSAGES_MAX:
        raise InvalidInput("max_messages", repr(max_messages)[:100], f"it must be 1 to {FETCH_MESSAGES_MAX}")
    backoff = Backoff(patience_seconds)
    while True:
        try:
            return _read(transport, Read(topic, partition, offset, offset + max_messages), max_messages)
        except Unreachable:
            if not backoff.wait():
                raise


def _read(transport: Transport, ticket: Read, max_messages: int) -> pa.RecordBatch:
    stream = transport.read(ticket)
    batches: list[pa.RecordBatch] = []
    rows = 0
    while rows < max_messages and (batch := stream.read()) is not None:
        batches.append(batch.slice(0, max_messages - rows))
        rows += batches[-1].num_rows
    if rows >= max_messages:
        stream.cancel()
    if not batches:
        return NO_ROWS
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def scan(transport: Transport, ticket: Read, patience_seconds: float) -> Iterator[pa.RecordBatch]:
    """The batches of a range, going on where the connection broke; as patient after every batch that came."""
    backoff = Backoff(patience_seconds)
    while ticket.end is None or ticket.offset < ticket.end:
        try:
            stream = transport.read(ticket)
            while (batch := stream.read()) is not None:
                ticket = structs.replace(ticket, offset=ticket.offset + batch.num_rows)
                backoff = Backoff(patience_seconds)
                yield batch
            return
        except HeadraceError as error:
            if not (error.retry or isinstance(error, Unreachable)) or not backoff.wait():
                raise


NO_ROWS: Final = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in READ_SCHEMA], schema=READ_SCHEMA)

"""Pending batches: messages that are sent together. Collected one by one into lists, or given as a batch.

The owner guards a batch: the buffer while it is collected, the sender from then on.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.producer.futures import Outcome
from headrace.core.lists import binaries, maps, numbers, repeated, whole_numbers
from headrace.core.messages import ATTRIBUTES, PUBLISH_SCHEMA, TIMESTAMP
from headrace.wire.native import Record, WrittenAt

# Overhead of a message beside its bytes: lists, a future, and its share of the columns.
MESSAGE_OVERHEAD_BYTES: Final = 64

_OPTIONAL: Final = ("attributes", "created_at", "partition", "seqno")


class PendingBatch:
    """Some messages, and their outcome."""

    def __init__(self, batch: pa.RecordBatch | None = None) -> None:
        self.outcome = Outcome()
        self.since = time.monotonic()
        self.batch = batch
        self.is_repeatable = False
        # Taken by who writes it, in flight from just before that, released when its outcome is known.
        self.is_taken = self.is_in_flight = self.is_released = False
        self.was_sent = False
        # What the producer numbers it from.
        self.first_seqno: int | None = None
        self.bytes = 0 if batch is None else batch.nbytes
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self._others: dict[str, list[Any]] = {}

    @property
    def rows(self) -> int:
        """The number of messages."""
        return len(self.values) if self.batch is None else self.batch.num_rows

    def set(self, name: str, value: Any) -> None:
        """Give the message that was added last another column."""
        column = self._others.setdefault(name, [])
        column.extend([None] * (len(self.values) - 1 - len(column)))
        column.append(value)

    def columns(self, codec: str) -> dict[str, pa.Array]:
        """What was collected, as Arrow."""
        rows = len(self.values)
        columns = {"value": binaries(self.values), "key": binaries(self.keys)}
        for name in _OPTIONAL:
            if name in self._others:
                column = self._others[name]
                column.extend([None] * (rows - len(column)))
                columns[name] = _column(name, column)
        if codec != "raw":
            columns["codec"] = repeated(codec, rows)
        return columns

    def record(self) -> Record:
        """What was collected, as the only message that it is."""
        created, partition, seqno = (self._only(name) for name in ("created_at", "partition", "seqno"))
        given = self.first_seqno if seqno is None else seqno
        return Record(self.values[0], self.keys[0], partition, created, given, self._only("attributes"))

    def _only(self, name: str) -> Any:
        return self._others[name][0] if name in self._others else None

    def last_written(self, receipts: pa.RecordBatch | WrittenAt) -> int | None:
        """The highest seqno of the messages that were written; none without any."""
        if isinstance(receipts, WrittenAt):
            # A single message.
            seqno: int | None = self.record().seqno if self.batch is None else self.batch.column("seqno")[0].as_py()
            return seqno
        assert self.batch is not None, "only single messages are sent without one"
        return last_written(self.batch, receipts)


def _column(name: str, values: list[Any]) -> pa.Array:
    if name == "attributes":
        return maps(values, ATTRIBUTES)
    if name == "created_at":
        return whole_numbers(pa.int64(), values).view(TIMESTAMP)
    return whole_numbers(pa.int64() if name == "seqno" else pa.int32(), values)


def numbered(columns: dict[str, pa.Array], producer_id: str, group_id: str, first_seqno: int) -> dict[str, pa.Array]:
    """The columns with the source and a seqno for each row, unless they have seqnos of their own."""
    rows = len(columns["value"])
    return {
        "seqno": numbers(pa.int64(), np.arange(first_seqno, first_seqno + rows, dtype=np.int64)),
        **columns,
        "producer_id": repeated(producer_id, rows),
        "message_group_id": repeated(group_id, rows),
    }


def last_written(batch: pa.RecordBatch, receipts: pa.RecordBatch) -> int | None:
    """The highest seqno of the messages that were written; none without any."""
    status = receipts.column("status")
    written = pc.equal(status, repeated("written", len(status)))
    last: int | None = pc.max(batch.column("seqno").filter(written)).as_py()
    return last


def as_batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Columns as a batch, in the order of the schema so that batches with the same columns look alike."""
    names = [name for name in PUBLISH_SCHEMA.names if name in columns]
    names += [name for name in columns if name not in names]
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch | None:
    """The batch with the columns of a stream, those it lacks as nulls; none if it does not go into that stream."""
    if batch.schema.equals(schema):
        return batch
    if any(
        schema.get_field_index(field.name) < 0 or schema.field(field.name).type != field.type for field in batch.schema
    ):
        return None
    names = set(batch.schema.names)
    columns = [
        batch.column(field.name) if field.name in names else pa.nulls(batch.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)

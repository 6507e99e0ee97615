"""Read messages as a record batch: the way back of `decode`.

The numbers before a key, before a value and behind it are written as three binary columns; Arrow then joins them with
keys, values and headers row by row, and the bytes of the joined column are the records. Without a codec: the reader
is near, or compresses the connection. The time of a record is `created_at`, or the broker's where a message has none.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.hashes.columns import byte_rows
from headrace.protocols.kafka.records.header import NO_PRODUCER, BatchHeader, write_header
from headrace.protocols.kafka.records.varints import Int64s, lengths_of, write_varints, zigzag_of

_MILLISECOND_US: Final = 1000
_JOIN: Final = pc.JoinOptions(null_handling="replace", null_replacement="")


def encode(batch: pa.RecordBatch) -> bytes:
    """The messages of one partition, with their offsets, as one record batch; there must be at least one."""
    offsets = np.asarray(batch.column("offset"))
    times_ms = _times_ms(batch)
    key, value = batch.column("key"), batch.column("value")
    headers = _headers(batch.column("attributes"))
    offset_delta, time_delta = offsets - offsets[0], times_ms - times_ms[0]
    key_length, value_length = _lengths(key), _lengths(value)
    size = 1 + np.maximum(key_length, 0) + np.maximum(value_length, 0) + _lengths(headers)
    for numbers in (time_delta, offset_delta, key_length, value_length):
        size += lengths_of(zigzag_of(numbers))
    # The byte of attributes is written as a number too: that of zero.
    front = _numbers([size, np.zeros(len(size), np.int64), time_delta, offset_delta, key_length])
    records = pc.binary_join_element_wise(front, key, _numbers([value_length]), value, headers, b"", options=_JOIN)
    data, _, _ = byte_rows(records)
    header = BatchHeader(
        base_offset=int(offsets[0]),
        attributes=0,
        last_offset_delta=int(offset_delta[-1]),
        base_timestamp_ms=int(times_ms[0]),
        max_timestamp_ms=int(times_ms.max()),
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
        count=batch.num_rows,
    )
    return write_header(header, data.data)


def _times_ms(batch: pa.RecordBatch) -> Int64s:
    created = batch.column("created_at")
    times = batch.column("timestamp")
    if created.null_count < len(created):
        times = created if not created.null_count else pc.coalesce(created, times)
    times_ms: Int64s = np.asarray(times.cast(pa.int64())) // _MILLISECOND_US
    return times_ms


def _lengths(column: pa.Array) -> Int64s:
    """The length of each row, -1 for null."""
    if column.null_count == len(column):
        return np.full(len(column), -1, np.int64)
    lengths = byte_rows(column)[2]
    if column.null_count:
        lengths = np.where(column.is_null().to_numpy(zero_copy_only=False), -1, lengths)
    return lengths


def _numbers(columns: list[Int64s]) -> pa.Array:
    """A binary column whose rows are these numbers as varints, one after another."""
    zigzag = [zigzag_of(numbers) for numbers in columns]
    lengths = [lengths_of(each) for each in zigzag]
    ends = np.zeros(len(columns[0]) + 1, np.int64)
    np.cumsum(sum(lengths[1:], lengths[0]), out=ends[1:])
    data = np.empty(int(ends[-1]), np.uint8)
    position = ends[:-1].copy()
    for each, length in zip(zigzag, lengths, strict=True):
        write_varints(data, position, each, length)
        position += length
    return _binary(ends, data)


def _binary(offsets: Int64s, data: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _headers(attributes: pa.Array) -> pa.Array:
    """What each record has behind its value: how many headers, and these."""
    rows = len(attributes)
    if attributes.null_count == rows:
        return _binary(np.arange(rows + 1), np.zeros(rows, np.uint8))
    offsets = np.asarray(attributes.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    names = attributes.keys.slice(first, last - first).cast(pa.binary())
    values = attributes.items.slice(first, last - first)
    entries = pc.binary_join_element_wise(
        _numbers([_lengths(names)]), names, _numbers([_lengths(values)]), values, b"", options=_JOIN
    )
    counts = np.diff(offsets)
    if attributes.null_count:
        # A null row may have entries behind it, which are not its own.
        valid = attributes.is_valid().to_numpy(zero_copy_only=False)
        entries, counts = entries.filter(pa.array(np.repeat(valid, counts))), np.where(valid, counts, 0)
    data, _, lengths = byte_rows(entries)
    ends = np.concatenate([[0], np.cumsum(lengths)])[np.concatenate([[0], np.cumsum(counts)])]
    return pc.binary_join_element_wise(_numbers([counts]), _binary(ends, data), b"", options=_JOIN)

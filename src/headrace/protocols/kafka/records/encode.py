"""Read messages as a record batch: the way back of `decode`.

The numbers before a key, before a value and behind it are written as three binary columns; Arrow then joins them with
keys, values and headers row by row, and the bytes of the joined column are the records. Without a codec: the reader
is near, or compresses the connection. The time of a record is `created_at`, or the broker's where a message has none. A
topic may ask for the broker's time of all: then a record batch says so, and has one time for all of its records.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.hashes.columns import byte_rows
from headrace.protocols.kafka.records.header import LOG_APPEND_TIME, NO_PRODUCER, BatchHeader, write_header
from headrace.protocols.kafka.records.varints import Bytes, Int64s, lengths_of, write_varints, zigzag_of

_MILLISECOND_US: Final = 1000
# What of a message is in a record.
_COLUMNS: Final = ["offset", "timestamp", "created_at", "key", "value", "attributes"]
_JOIN: Final = pc.JoinOptions(null_handling="replace", null_replacement="")


def encode(batch: pa.RecordBatch) -> bytes:
    """The messages of one partition, with their offsets, as one record batch; there must be at least one."""
    return encode_many([batch])[0]


def encode_by_broker_time(batches: Sequence[pa.RecordBatch]) -> list[bytes]:
    """Record batches of each, one after another, in each of which the broker's time is the same."""
    runs: list[pa.RecordBatch] = []
    counts: list[int] = []
    for batch in batches:
        times_ms = np.asarray(batch.column("timestamp").cast(pa.int64())) // _MILLISECOND_US
        cuts = [0, *(np.flatnonzero(np.diff(times_ms)) + 1).tolist(), batch.num_rows]
        runs += [batch.slice(start, end - start) for start, end in pairwise(cuts)]
        counts.append(len(cuts) - 1)
    encoded = iter(encode_many(runs, LOG_APPEND_TIME))
    return [b"".join(islice(encoded, count)) for count in counts]


def encode_many(batches: Sequence[pa.RecordBatch], attributes: int = 0) -> list[bytes]:
    """A record batch of each, all encoded at once: one pass over the columns costs much less than one for each."""
    whole = batches[0] if len(batches) == 1 else _joined(batches)
    counts = np.array([batch.num_rows for batch in batches], np.int64)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    first = bounds[:-1]
    offsets, times_ms = np.asarray(whole.column("offset")), times_ms_of(whole, bool(attributes & LOG_APPEND_TIME))
    offset_delta = offsets - np.repeat(offsets[first], counts)
    data, record_ends = _records(whole, times_ms - np.repeat(times_ms[first], counts), offset_delta)
    view = data.data
    ends = record_ends[bounds].tolist()
    described = zip(
        offsets[first].tolist(),
        offset_delta[bounds[1:] - 1].tolist(),
        times_ms[first].tolist(),
        np.maximum.reduceat(times_ms, first).tolist(),
        counts.tolist(),
        strict=True,
    )
    return [
        write_header(_header(attributes, *numbers), view[start:end])
        for numbers, start, end in zip(described, ends, ends[1:], strict=False)
    ]


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """What records need of batches that have the same columns, one after another: joined column by column."""
    places = map(batches[0].schema.get_field_index, _COLUMNS)
    columns = [pa.concat_arrays([batch.column(place) for batch in batches]) for place in places]
    return pa.RecordBatch.from_arrays(columns, _COLUMNS)


def _header(
    attributes: int, base_offset: int, last_delta: int, first_time_ms: int, max_time_ms: int, count: int
) -> BatchHeader:
    return BatchHeader(base_offset, attributes, last_delta, first_time_ms, max_time_ms, NO_PRODUCER, -1, -1, count)


def _records(batch: pa.RecordBatch, time_delta: Int64s, offset_delta: Int64s) -> tuple[Bytes, Int64s]:
    """The bytes of the records, and where they begin and end."""
    key, value = batch.column("key"), batch.column("value")
    headers = _headers(batch.column("attributes"))
    key_length, value_length = _lengths(key), _lengths(value)
    numbers = [zigzag_of(each) for each in (time_delta, offset_delta, key_length, value_length)]
    lengths = [lengths_of(each) for each in numbers]
    size = 1 + np.maximum(key_length, 0) + np.maximum(value_length, 0) + _lengths(headers)
    for each in lengths:
        size += each
    # The byte of attributes is written as a number too: that of zero.
    nothing = np.zeros(len(size), np.uint64)
    sizes = zigzag_of(size)
    front = _numbers([sizes, nothing, *numbers[:3]], [lengths_of(sizes), np.ones(len(size), np.int64), *lengths[:3]])
    between = _numbers(numbers[3:], lengths[3:])
    records = pc.binary_join_element_wise(front, key, between, value, headers, b"", options=_JOIN)
    data, starts, row_lengths = byte_rows(records)
    return data, np.append(starts, starts[-1] + row_lengths[-1])


def times_ms_of(batch: pa.RecordBatch, is_broker_time: bool) -> Int64s:
    """The times that consumers see."""
    created = batch.column("created_at")
    times = batch.column("timestamp")
    if not is_broker_time and created.null_count < len(created):
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


def _numbers(zigzag: list[npt.NDArray[np.uint64]], lengths: list[Int64s]) -> pa.Array:
    """A binary column whose rows are these numbers as varints, one after another."""
    ends = np.zeros(len(zigzag[0]) + 1, np.int64)
    np.cumsum(sum(lengths[1:], lengths[0]), out=ends[1:])
    data = np.empty(int(ends[-1]), np.uint8)
    position = ends[:-1].copy()
    for each, length in zip(zigzag, lengths, strict=True):
        write_varints(data, position, each, length)
        position += length
    return _binary(ends, data)


def _number(numbers: Int64s) -> pa.Array:
    """The same of one number a row."""
    zigzag = zigzag_of(numbers)
    return _numbers([zigzag], [lengths_of(zigzag)])


def _binary(offsets: Int64s, data: Bytes) -> pa.Array:
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
        _number(_lengths(names)), names, _number(_lengths(values)), values, b"", options=_JOIN
    )
    counts = np.diff(offsets)
    if attributes.null_count:
        # A null row may have entries behind it, which are not its own.
        valid = attributes.is_valid().to_numpy(zero_copy_only=False)
        entries, counts = entries.filter(pa.array(np.repeat(valid, counts))), np.where(valid, counts, 0)
    data, _, lengths = byte_rows(entries)
    ends = np.concatenate([[0], np.cumsum(lengths)])[np.concatenate([[0], np.cumsum(counts)])]
    return pc.binary_join_element_wise(_number(counts), _binary(ends, data), b"", options=_JOIN)

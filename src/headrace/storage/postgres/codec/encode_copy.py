"""Encodes messages for binary COPY: Arrow columns are laid out as rows, without a Python loop over messages.

A row of binary COPY is the number of its fields, then each field as four bytes of length and its bytes; all numbers
are big-endian. The fixed front of all rows is one numpy array of records. It is joined with the variable columns and
their lengths row by row in Arrow, and the data of the joined column is sent as it is.

Columns that are all null are omitted from the COPY. Attributes become an array of names and
values in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.hashes.columns import Int64s, byte_rows
from headrace.core.messages import message_sizes
from headrace.core.publish.state import Commit

HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER: Final = b"\xff\xff"
FIXED_COLUMNS: Final = ("partition", "offset", "time_us", "bytes_before", "value")
# The names of stored columns that have another name in the table.
TABLE_NAMES: Final = {"created_at": "created_us"}
_NULL: Final = -1
_BYTEA: Final = 17

_FRONT: Final = np.dtype(
    [
        ("fields", ">i2"),
        ("partition_bytes", ">i4"),
        ("partition", ">i4"),
        ("offset_bytes", ">i4"),
        ("offset", ">i8"),
        ("time_bytes", ">i4"),
        ("time_us", ">i8"),
        ("before_bytes", ">i4"),
        ("bytes_before", ">i8"),
        ("value_bytes", ">i4"),
    ]
)
_NUMBER: Final = np.dtype([("bytes", ">i4"), ("number", ">i8")])
_ARRAY_FRONT: Final = np.dtype([(name, ">i4") for name in ("dimensions", "flags", "type", "size", "first")])
# An empty array has no dimension, so neither size nor lower bound.
_EMPTY_ARRAY_BYTES: Final = 12


def sizes_of(rows: pa.RecordBatch) -> Int64s:
    """The size of each message."""
    names = rows.schema.names
    key = rows.column("key") if "key" in names else None
    attributes = rows.column("attributes") if "attributes" in names else None
    return message_sizes(rows.column("value"), key, attributes)


def places_of(commit: Commit, sizes: Int64s, byte_ends: Int64s) -> Int64s:
    """For each row the bytes of all messages before it in its partition."""
    directory = commit.directory
    before = np.cumsum(sizes) - sizes
    places: Int64s = before + np.repeat(byte_ends[directory.partition] - before[directory.first_row], directory.rows)
    return places


def encode(commit: Commit, bytes_before: Int64s) -> tuple[list[str], Any]:
    """The columns that are given, and the rows of a commit as COPY takes them."""
    rows, directory = commit.rows, commit.directory
    names = [name for name in rows.schema.names if name != "value"]
    front = np.zeros(rows.num_rows, _FRONT)
    front["fields"] = len(FIXED_COLUMNS) + len(names)
    front["partition_bytes"], front["partition"] = 4, np.repeat(directory.partition, directory.rows)
    front["offset_bytes"] = front["time_bytes"] = front["before_bytes"] = 8
    front["offset"] = np.arange(rows.num_rows) + np.repeat(directory.first_offset - directory.first_row, directory.rows)
    front["time_us"], front["bytes_before"] = commit.time_us, bytes_before
    front["value_bytes"] = _field_lengths(rows.column("value"))
    parts = [_cells(front), rows.column("value")]
    for name in names:
        parts += _field(rows.column(name))
    columns = [*FIXED_COLUMNS, *(TABLE_NAMES.get(name, name) for name in names)]
    return columns, memoryview(_buffer(_join(parts)))


def _field(column: pa.Array) -> Sequence[pa.Array]:
    """The parts of one optional column: its lengths, and its bytes."""
    if pa.types.is_map(column.type):
        column = _arrays(column)
    if pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type):
        return [_numbers(column)]
    return [_cells(_field_lengths(column).astype(">i4")), column.cast(pa.binary())]


def _field_lengths(column: pa.Array) -> Int64s:
    """The length before each field; that of null says so."""
    lengths = byte_rows(column)[2]
    if column.null_count:
        lengths = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, lengths)
    return lengths


def _numbers(column: pa.Array) -> pa.Array:
    """Numbers with their lengths; a null is a length alone."""
    cells = np.zeros(len(column), _NUMBER)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    cells["bytes"] = np.where(valid, 8, _NULL)
    cells["number"] = np.asarray(pc.fill_null(column.cast(pa.int64()), 0))
    return _cells(cells) if valid.all() else _shortened(cells, np.where(valid, _NUMBER.itemsize, 4))


def _arrays(column: pa.Array) -> pa.Array:
    """Maps as arrays of bytes, names and values in turn."""
    first = np.asarray(column.offsets).astype(np.int64)
    bounds = first - first[0]
    entries = slice(int(first[0]), int(first[-1]))
    names = column.keys[entries].cast(pa.binary())
    items = column.items[entries]
    pairs = _join([*_field(names), *_field(items)])
    counts = np.diff(bounds)
    fronts = np.zeros(len(counts), _ARRAY_FRONT)
    fronts["dimensions"], fronts["type"], fronts["size"], fronts["first"] = counts > 0, _BYTEA, 2 * counts, 1
    front = _shortened(fronts, np.where(counts > 0, _ARRAY_FRONT.itemsize, _EMPTY_ARRAY_BYTES))
    ends = np.concatenate([[0], np.cumsum(byte_rows(pairs)[2])]).astype(np.int32)
    elements = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(ends[bounds]), _buffer(pairs)])
    arrays = _join([front, elements])
    if not column.null_count:
        return arrays
    return pc.if_else(column.is_valid(), arrays, pa.scalar(None, pa.binary()))


_NOTHING: Final = pa.scalar(b"", pa.binary())


def _join(parts: Sequence[Any]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _NOTHING, null_handling="replace", null_replacement=b"")


def _cells(records: np.ndarray[Any, Any]) -> pa.Array:
    """Records of one size as a binary column."""
    offsets = np.arange(len(records) + 1, dtype=np.int32) * records.itemsize
    return pa.Array.from_buffers(pa.binary(), len(records), [None, pa.py_buffer(offsets), pa.py_buffer(records)])


def _shortened(records: np.ndarray[Any, Any], lengths: Int64s) -> pa.Array:
    """The first bytes of each record as a binary column."""
    whole = records.view(np.uint8).reshape(len(records), records.itemsize)
    kept = whole[np.arange(records.itemsize) < lengths[:, None]]
    offsets = np.zeros(len(records) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(records), [None, pa.py_buffer(offsets), pa.py_buffer(kept)])


def _buffer(column: pa.Array) -> pa.Buffer:
    """The bytes of all rows, one after another."""
    return pa.py_buffer(byte_rows(column)[0])

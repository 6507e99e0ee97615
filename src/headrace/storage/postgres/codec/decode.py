"""Reads messages as columns: the database joins each column of a range into one value, and numpy splits it again.

A result row per message would cost a Python object per field. So the rows of a range are aggregated: the bytes of all
values one after another, and their lengths as four bytes each. Key, value and time are read at once, with a count of
what the other columns hold; those that hold anything are read by a second statement, since rows never change.

The range is bounded by offsets and by `bytes_before`, which says how many bytes come before each message in its
partition: the database returns no more than requested, regardless of the size of messages.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from psycopg import sql

from headrace.core.errors import Damaged
from headrace.core.hashes.columns import Int64s
from headrace.core.messages import ATTRIBUTES, STORED_SCHEMA, TIMESTAMP
from headrace.storage.postgres.pool import Connection

_BYTE_COLUMNS: Final = ("codec", "producer_id", "message_group_id")
_NUMBER_COLUMNS: Final = {"created_at": ("created_us", TIMESTAMP), "seqno": ("seqno", pa.int64())}
_OTHERS: Final = ("attributes", *_BYTE_COLUMNS, *_NUMBER_COLUMNS)
_NULL: Final = -1

_RANGE: Final = """
FROM {table} WHERE partition = %(partition)s AND "offset" >= %(offset)s AND "offset" < %(stop)s
    AND bytes_before <= (SELECT bytes_before FROM {table} WHERE partition = %(partition)s AND "offset" = %(offset)s)
        + %(bytes)s
ORDER BY "offset"
"""
_FIRST: Final = f"""
SELECT count(*), max("offset"), string_agg(value, ''),
    string_agg(int4send(coalesce(octet_length(value), {_NULL})), ''),
    string_agg(int8send(time_us), ''), count(key), string_agg(key, ''),
    string_agg(int4send(coalesce(octet_length(key), {_NULL})), ''),
    count(attributes), count(codec), count(producer_id), count(message_group_id), count(created_us), count(seqno)
FROM (
    SELECT "offset", value, time_us, key, attributes, codec, producer_id, message_group_id, created_us, seqno {_RANGE}
) AS kept
"""
_ATTRIBUTES: Final = f"""
SELECT string_agg(part, ''), string_agg(int4send(coalesce(octet_length(part), {_NULL})), '') FROM (
    SELECT part FROM {{table}}, unnest(attributes) WITH ORDINALITY AS parts(part, place)
    WHERE partition = %(partition)s AND "offset" >= %(offset)s AND "offset" < %(stop)s ORDER BY "offset", place
) AS kept
"""


def read_columns(
    connection: Connection, table: sql.Identifier, partition: int, offset: int, stop: int, bytes_max: int
) -> tuple[pa.RecordBatch, Int64s]:
    """Stored rows from `offset` on, before `stop`, and their times.

    It may return one message more than fits, because it starts within the limit.
    """
    place = {"partition": partition, "offset": offset, "stop": stop, "bytes": bytes_max}
    with connection.cursor(binary=True) as cursor:
        found = cursor.execute(sql.SQL(_FIRST).format(table=table), place).fetchone()
        assert found is not None
        count, last, values, value_lengths, times, keys, key_bytes, key_lengths, *others = found
        if last != offset + count - 1:
            raise Damaged(f"the table of segment {table.as_string()}", offset, "messages are missing from here on")
        arrays = {"value": _bytes(values or b"", _int32s(value_lengths), pa.binary())}
        if keys:
            arrays["key"] = _bytes(key_bytes, _int32s(key_lengths), pa.binary())
        present = [name for name, held in zip(_OTHERS, others, strict=True) if held]
        if present:
            place["stop"] = offset + count
            arrays |= _read_others(cursor, table, place, present)
    schema = pa.schema([field for field in STORED_SCHEMA if field.name in arrays])
    rows = pa.RecordBatch.from_arrays([arrays[field.name] for field in schema], schema=schema)
    return rows, np.frombuffer(times, ">i8").astype(np.int64)


def _read_others(cursor: Any, table: sql.Identifier, place: dict[str, int], present: list[str]) -> dict[str, pa.Array]:
    """The columns that few messages have."""
    parts = ", ".join(part for name in present for part in _aggregates(name))
    inner = 'SELECT * FROM {table} WHERE partition = %(partition)s AND "offset" >= %(offset)s AND "offset" < %(stop)s'
    query = sql.SQL(f'SELECT {parts} FROM ({inner} ORDER BY "offset") AS kept').format(table=table)
    found = iter(cursor.execute(query, place).fetchone())
    arrays: dict[str, pa.Array] = {}
    for name in present:
        if name in _NUMBER_COLUMNS:
            arrays[name] = _numbers(next(found), next(found), _NUMBER_COLUMNS[name][1])
        elif name in _BYTE_COLUMNS:
            arrays[name] = _bytes(next(found), _int32s(next(found)), pa.string())
        else:
            cells = cursor.connection.cursor(binary=True).execute(sql.SQL(_ATTRIBUTES).format(table=table), place)
            arrays[name] = _maps(_int32s(next(found)), *cells.fetchone())
    return arrays


def _aggregates(name: str) -> list[str]:
    if name in _NUMBER_COLUMNS:
        column = _NUMBER_COLUMNS[name][0]
        held = f"string_agg(CASE WHEN {column} IS NULL THEN '\\x00'::bytea ELSE '\\x01'::bytea END, '')"
        return [f"string_agg(int8send(coalesce({column}, 0)), '')", held]
    if name in _BYTE_COLUMNS:
        return [f"string_agg({name}, '')", f"string_agg(int4send(coalesce(octet_length({name}), {_NULL})), '')"]
    return [f"string_agg(int4send(coalesce(cardinality({name}), {_NULL})), '')"]


def _int32s(data: bytes | None) -> Int64s:
    return np.frombuffer(data or b"", ">i4").astype(np.int64)


def _bytes(data: bytes, lengths: Int64s, kind: pa.DataType) -> pa.Array:
    """A column of bytes or text from its bytes and lengths."""
    offsets, valid = _bounds(lengths)
    return pa.Array.from_buffers(kind, len(lengths), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _bounds(lengths: Int64s) -> tuple[np.ndarray[Any, Any], pa.Buffer | None]:
    """Where each row begins and ends, and which rows are not null."""
    is_null = lengths == _NULL
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.where(is_null, 0, lengths), out=offsets[1:])
    return offsets, _mask(~is_null) if is_null.any() else None


def _mask(valid: np.ndarray[Any, Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _numbers(data: bytes, held: bytes, kind: pa.DataType) -> pa.Array:
    numbers = np.frombuffer(data, ">i8").astype(np.int64)
    valid = np.frombuffer(held, np.uint8) > 0
    return pa.Array.from_buffers(kind, len(numbers), [_mask(valid), pa.py_buffer(numbers)])


def _maps(counts: Int64s, data: bytes | None, lengths: bytes | None) -> pa.Array:
    """Maps from the number of cells of each row, and the cells of all: names and values in turn."""
    cells = _bytes(data or b"", _int32s(lengths), pa.binary())
    places = np.arange(0, len(cells), 2)
    names, items = cells.take(pa.array(places)), cells.take(pa.array(places + 1))
    offsets, _ = _bounds(np.where(counts == _NULL, _NULL, counts // 2))
    mask = pa.array(counts == _NULL)
    return pa.MapArray.from_arrays(
        pa.array(offsets), names.cast(pa.string()), items, type=ATTRIBUTES, mask=mask if mask.true_count else None
    )

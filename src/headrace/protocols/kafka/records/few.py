"""A handful of records as Arrow columns, read one by one.

Reading whole columns costs the same for one record as for a hundred, and most of what a single message costs. So a few
records are read by a plain loop. It knows no rule of its own: whatever it does not find as clients write it, it leaves
to `decode`, which says what is wrong. What both accept is the same, which is a test. Stateless and thread-safe.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

from headrace.core.messages import ATTRIBUTES, TIMESTAMP
from headrace.protocols.kafka.records.header import NO_TIMESTAMP, BatchHeader

# Beyond this, whole columns are quicker.
FEW_RECORDS: Final = 64
_MILLISECOND_US: Final = 1000
_BINARY: Final = pa.binary()
_TYPES: Final = {"value": _BINARY, "key": _BINARY, "attributes": ATTRIBUTES, "created_at": TIMESTAMP}
# Times that are no question: from 1970 to the year 2248.
_TIME_MS_MAX: Final = 1 << 43
_NUMBER_BITS: Final = 35

_Headers = list[tuple[bytes, bytes | None]]


class _Unusual(Exception):
    """Bytes that are not as clients write them: wrong, or only rare."""


def read_few(batches: Iterable[tuple[BatchHeader, memoryview]]) -> pa.RecordBatch | None:
    """The records of some batches, one after another; None if they are for `decode` to judge."""
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    headers: list[_Headers | None] = []
    times: list[int | None] = []
    try:
        for header, view in batches:
            records, position = view.tobytes(), 0
            for row in range(header.count):
                length, start = _number(records, position)
                end = start + length
                # One byte of attributes, which has no meaning.
                time_delta, position = _number(records, start + 1)
                offset_delta, position = _number(records, position)
                key, position = _bytes(records, position)
                value, position = _bytes(records, position)
                named, position = _headers(records, position)
                if offset_delta != row or position != end:
                    raise _Unusual
                values.append(value)
                keys.append(key)
                headers.append(named)
                times.append(_time(header, time_delta))
            if position != len(records):
                raise _Unusual
    except (_Unusual, IndexError, UnicodeDecodeError):
        return None
    columns = {"value": _binary(values)}
    if any(key is not None for key in keys):
        columns["key"] = _binary(keys)
    if any(headers):
        columns["attributes"] = _attributes(headers)
    if any(time is not None for time in times):
        columns["created_at"] = _column(TIMESTAMP, times, array("q", [time or 0 for time in times]))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=_schema(tuple(columns)))


@cache
def _schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(name, _TYPES[name]) for name in names])


# Arrays are made of buffers: given a list, Arrow would import pandas at the first one.


def _binary(rows: Sequence[bytes | None], kind: pa.DataType = _BINARY) -> pa.Array:
    data = [row or b"" for row in rows]
    offsets = array("i", accumulate(map(len, data), initial=0))
    return _column(kind, rows, offsets, b"".join(data))


def _attributes(rows: Sequence[_Headers | None]) -> pa.Array:
    offsets = array("i", accumulate((len(row or ()) for row in rows), initial=0))
    headers = [header for row in rows for header in row or ()]
    names = _binary([name for name, _ in headers], pa.string())
    values = _binary([value for _, value in headers])
    mask = None
    if None in rows:
        mask = pa.Array.from_buffers(pa.bool_(), len(rows), [None, _bits([row is None for row in rows])])
    bounds = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
    return pa.MapArray.from_arrays(bounds, names, values, type=ATTRIBUTES, mask=mask)


def _column(kind: pa.DataType, rows: Sequence[object], *buffers: Any) -> pa.Array:
    """An array of these buffers, with nulls where rows are none."""
    is_valid = _bits([row is not None for row in rows]) if None in rows else None
    return pa.Array.from_buffers(kind, len(rows), [is_valid, *map(pa.py_buffer, buffers)])


def _bits(flags: Sequence[bool]) -> pa.Buffer:
    bits = sum(1 << place for place, flag in enumerate(flags) if flag)
    return pa.py_buffer(bits.to_bytes((len(flags) + 7) // 8, "little"))


def _number(records: bytes, position: int) -> tuple[int, int]:
    """A zigzag number of up to five bytes, and where it ends."""
    byte = records[position]
    position += 1
    zigzag = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if shift == _NUMBER_BITS:
            raise _Unusual
        byte = records[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        shift += 7
    return (zigzag >> 1) ^ -(zigzag & 1), position


def _bytes(records: bytes, position: int) -> tuple[bytes | None, int]:
    """Bytes with their length before them, or null, and where they end."""
    length, start = _number(records, position)
    if length < 0:
        if length < -1:
            raise _Unusual
        return None, start
    end = start + length
    if end > len(records):
        raise _Unusual
    return records[start:end], end


def _headers(records: bytes, position: int) -> tuple[_Headers | None, int]:
    count, position = _number(records, position)
    if not count:
        return None, position
    if not 0 < count <= FEW_RECORDS:
        raise _Unusual
    headers: _Headers = []
    for _ in range(count):
        name, position = _bytes(records, position)
        value, position = _bytes(records, position)
        if name is None:
            raise _Unusual
        # It must be UTF-8.
        name.decode()
        headers.append((name, value))
    return headers, position


def _time(header: BatchHeader, delta: int) -> int | None:
    """When a record was created, in microseconds."""
    is_append_time = header.is_log_append_time
    base = header.max_timestamp_ms if is_append_time else header.base_timestamp_ms
    if is_append_time:
        delta = 0
    if base == NO_TIMESTAMP and delta == 0:
        return None
    time_ms = base + delta
    if not (0 <= base <= _TIME_MS_MAX and 0 <= time_ms <= _TIME_MS_MAX):
        raise _Unusual
    return time_ms * _MILLISECOND_US

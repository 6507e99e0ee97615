"""Numbers and bytes of Avro as columns of their logical types: whole columns at a time.

Numbers that a column of the type cannot hold raise: a date outside the years 1 to 9999, a time that is not of one day,
a decimal of more digits than its precision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.values.arrays import DAY_US, FIRST_DAY, LAST_DAY, Scalars, is_within
from headrace.core.values.types import DecimalOf, arrow_type

_DECIMAL_BYTES: Final = 16
_YEARS: Final = (FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1)


def plain_column(kind: str) -> Scalars:
    """A column of what is stored."""
    return Scalars(partial(pa.array, type=arrow_type(kind)))


def _moments(kind: str, unit_us: int, bounds_us: tuple[int, int], items: Any) -> pa.Array:
    """Numbers of a unit as microseconds, of moments or within a day."""
    numbers = pa.array(items, pa.int64())
    least, most = bounds_us
    if not is_within(numbers, -(-least // unit_us), most // unit_us):
        raise ValueError(f"a {kind} is not {'of one day' if kind == 'time' else 'in the years 1 to 9999'}")
    in_us: pa.Array = pc.multiply(numbers, unit_us)
    return in_us.cast(arrow_type(kind))


def _dates(items: Any) -> pa.Array:
    numbers = pa.array(items, pa.int64())
    if not is_within(numbers, FIRST_DAY, LAST_DAY):
        raise ValueError("a date is not in the years 1 to 9999")
    return numbers.cast(pa.int32()).cast(pa.date32())


def _of(kind: str, unit_us: int, bounds_us: tuple[int, int] = _YEARS) -> tuple[str, Scalars]:
    return kind, Scalars(partial(_moments, kind, unit_us, bounds_us))


LOGICAL: Final[dict[tuple[str, str], tuple[str, Scalars]]] = {
    ("int", "date"): ("date", Scalars(_dates)),
    ("int", "time-millis"): _of("time", 1000, (0, DAY_US - 1)),
    ("long", "time-micros"): _of("time", 1, (0, DAY_US - 1)),
    ("long", "timestamp-millis"): _of("date-time", 1000),
    ("long", "timestamp-micros"): _of("date-time", 1),
    ("long", "local-timestamp-millis"): _of("local-date-time", 1000),
    ("long", "local-timestamp-micros"): _of("local-date-time", 1),
}


def uuids(items: list[bytes | None] | pa.Array) -> pa.Array:
    """Sixteen bytes each as the text of a UUID."""
    given = pa.array(items, pa.binary()).to_pylist()
    return pa.array([None if item is None else _uuid(item.hex()) for item in given], pa.string())


def _uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def decimals(kind: DecimalOf) -> Callable[[Any], pa.Array]:
    """How numbers become decimals: each is a whole number in two's complement, big-endian, in units of the scale."""
    return partial(_decimals, arrow_type(kind))


def _decimals(kind: pa.DataType, items: list[bytes | None] | pa.Array) -> pa.Array:
    given = pa.array(items, pa.binary())
    offsets = np.frombuffer(given.buffers()[1], np.int32)
    lengths, ends = np.diff(offsets), offsets[1:]
    if lengths.max(initial=0) > _DECIMAL_BYTES:
        return _decimals(kind, [item and _short(item) for item in given.to_pylist()])
    if np.any((lengths == 0) & np.asarray(given.is_valid())):
        raise ValueError("a decimal has no bytes")
    data = np.frombuffer(given.buffers()[2] or b"", np.uint8)
    numbers = np.zeros((len(given), _DECIMAL_BYTES), np.uint8)
    has_bytes = lengths > 0
    numbers[has_bytes] = np.where(data[offsets[:-1][has_bytes]] & 0x80, 0xFF, 0)[:, None]
    # From the last byte, which comes first here; those that a number does not have are its sign.
    for place in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > place)
        numbers[rows, place] = data[ends[rows] - 1 - place]
    made = pa.Array.from_buffers(kind, len(given), [given.buffers()[0], pa.py_buffer(numbers)])
    made.validate(full=True)
    return made


def _short(item: bytes) -> bytes:
    """A number in sixteen bytes, however long it is written."""
    number = int.from_bytes(item, "big", signed=True)
    if number.bit_length() >= 8 * _DECIMAL_BYTES:
        raise ValueError("a decimal has too many digits")
    return number.to_bytes(_DECIMAL_BYTES, "big", signed=True)

"""Decoded values as arrays: what JSON or Avro made of many values becomes one array of Arrow, all at once.

A shape says how decoded objects look: where the fields of an object are, and how the scalars of a column become an
array. The shape of a schema is made by the module of its format. Arrays are made by whole columns. Whatever a row has
that no column can hold, such as a date in the year 20000, is the fault of this row alone: it must not stop the archive,
or blame others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

# The first and the last day that Python has a date for, 0001-01-01 and 9999-12-31, counted from 1970.
FIRST_DAY: Final = -719_162
LAST_DAY: Final = 2_932_896
DAY_US: Final = 86_400_000_000
# The first and the last microsecond of these.
_FIRST_US: Final = FIRST_DAY * DAY_US
_LAST_US: Final = (LAST_DAY + 1) * DAY_US - 1
# What is raised for an item that no array of its type can hold.
_UNFIT: Final = (ArithmeticError, ValueError, TypeError)


@dataclass(frozen=True, slots=True)
class Scalars:
    """Values of one column, and how an array is made of a list of them, or of an array of what is stored."""

    array: Callable[[Any], pa.Array]


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists, or null."""

    type: pa.DataType
    items: Shape


@dataclass(frozen=True, slots=True)
class Maps:
    """Dictionaries by string, or null."""

    type: pa.DataType
    values: Shape


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects, or null; how their fields are taken out of them. `absent` is one of which all fields are null."""

    type: pa.DataType
    absent: Any
    fields: Sequence[tuple[Callable[[Any], Any], Shape]]


Shape: TypeAlias = Scalars | Lists | Maps | Objects


def fitting_columns_of(shape: Objects, rows: Sequence[Any]) -> tuple[list[pa.Array], dict[int, str]]:
    """An array for each field of rows, and by row why no column can hold it: all its fields are null then."""
    try:
        return columns_of(shape, rows), {}
    except _UNFIT:
        fitting, faults = list(rows), {}
    for take, field in shape.fields:
        for row, fault in _faults(field, list(map(take, fitting)), 0):
            fitting[row], faults[row] = shape.absent, fault
    return columns_of(shape, fitting), faults


def _faults(shape: Shape, items: list[Any], first: int) -> Iterator[tuple[int, str]]:
    """Which items no array can hold, numbered from the first, and why: halves, until single ones are left."""
    try:
        array_of(shape, items)
    except _UNFIT as error:
        if len(items) == 1:
            yield first, f"the value does not fit: {error}"
            return
        middle = len(items) // 2
        yield from _faults(shape, items[:middle], first)
        yield from _faults(shape, items[middle:], first + middle)


def columns_of(shape: Objects, rows: Sequence[Any]) -> list[pa.Array]:
    """An array for each field of objects, none of them null; raises if one has what no array can hold."""
    return [array_of(field, list(map(take, rows))) for take, field in shape.fields]


def array_of(shape: Shape, items: list[Any]) -> pa.Array:
    """An array of decoded items, which may be null."""
    if isinstance(shape, Scalars):
        return shape.array(items)
    is_null = pa.array([item is None for item in items], pa.bool_())
    if isinstance(shape, Objects):
        arrays = columns_of(shape, [shape.absent if item is None else item for item in items])
        return pa.StructArray.from_arrays(arrays, fields=list(shape.type), mask=is_null)
    lengths = [0 if item is None else len(item) for item in items]
    offsets = pa.array([0, *accumulate(lengths)], pa.int32())
    if isinstance(shape, Lists):
        inner = array_of(shape.items, [each for item in items if item for each in item])
        return pa.ListArray.from_arrays(offsets, inner, shape.type, mask=is_null)
    keys = pa.array([key for item in items if item for key in item], pa.string())
    values = array_of(shape.values, [each for item in items if item for each in item.values()])
    return pa.MapArray.from_arrays(offsets, keys, values, shape.type, mask=is_null)


def items_of(shape: Shape, item: Any) -> int:
    """How many items all lists and maps in a decoded value have."""
    if item is None or isinstance(shape, Scalars):
        return 0
    if isinstance(shape, Objects):
        return sum(items_of(field, take(item)) for take, field in shape.fields)
    inner = shape.items if isinstance(shape, Lists) else shape.values
    if isinstance(inner, Scalars):
        return len(item)
    return len(item) + sum(items_of(inner, each) for each in (item.values() if isinstance(item, dict) else item))


def check_years(times: pa.Array) -> None:
    """Refuse times that are not in the years 1 to 9999 in UTC: Python cannot read them back."""
    if not is_within(times.cast(pa.int64()), _FIRST_US, _LAST_US):
        raise ValueError("a date-time is not in the years 1 to 9999 in UTC")


def is_within(numbers: pa.Array, least: int, most: int) -> bool:
    """Whether all numbers that are not null are within bounds."""
    found: Any = pc.min_max(numbers)
    return found["min"].as_py() is None or (least <= found["min"].as_py() and found["max"].as_py() <= most)

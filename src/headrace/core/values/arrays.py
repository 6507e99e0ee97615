"""Decoded values as arrays: what JSON or Avro made of many values becomes one array of Arrow, all at once.

A shape says how decoded objects look: where the fields of an object are, and how the scalars of a column become an
array. The shape of a schema is made by the module of its format. Arrays are made by whole columns; what no column can
hold raises, and the caller finds out which value it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def columns_of(shape: Objects, rows: Sequence[Any]) -> list[pa.Array]:
    """An array for each field of objects, none of them null."""
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

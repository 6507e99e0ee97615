"""Records of Avro decoded by columns: the first field of all values, then the second, and on.

    values ──► cursors, one for each value ──► field by field: read where each cursor is, move it on ──► columns
                       │
                       └─ a value that is anything but a whole record of the schema is left to the decoder of single
                          values (`rows`): it alone says what fits, and why not

A step is a few operations of numpy on all values at once, ten times as quick as decoding each. Of lists and maps the
first item of all values is read, then the second, and on. That is quick for short ones of many values: longer ones,
lists within lists, and few values with lists are left over. Cursors never leave the bytes: one that runs out of its
value is put back to its end, and the value is left over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.limits import VALUE_CELLS_MAX
from headrace.core.values.arrays import Lists, Maps, Objects, Scalars, Shape

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
# A number of nine bytes is the longest that is read here; one of 64 bits may have ten.
_NUMBER_BYTES: Final = 9
# What may be read behind the last value, before it is found out that it has ended.
_PADDING: Final = 16
# The longest lists that are read here, and the fewest values: each item costs as much for one value as for many.
_ITEMS_MAX: Final = 64
_VALUES_MIN: Final = 256
_FLOATS: Final = {"float": ("<f4", 4), "double": ("<f8", 8)}


@dataclass(slots=True)
class _Cursors:
    """Where the next field of each value begins, where the value ends, and whether it is a record up to here."""

    data: Bytes
    at: Ints
    ends: Ints
    is_good: npt.NDArray[np.bool_]

    def number(self) -> Ints:
        """Read a number of each."""
        first = self.data[self.at]
        self.at += 1
        found = (first & 0x7F).astype(np.uint64)
        rows = np.flatnonzero(first >= 0x80)
        for place in range(1, _NUMBER_BYTES):
            if not rows.size:
                break
            byte = self.data[self.at[rows]]
            self.at[rows] += 1
            found[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            rows = rows[byte >= 0x80]
        self.refuse(rows)
        self.stay_inside()
        return (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)

    def take(self, sizes: Ints | int) -> Ints:
        """Pass over bytes; where they begin."""
        starts = self.at.copy()
        self.refuse(np.flatnonzero((sizes < 0) | (sizes > self.ends - starts)))
        self.at += np.where(self.is_good, sizes, 0)
        self.stay_inside()
        return starts

    def refuse(self, rows: Any) -> None:
        """Leave values over."""
        self.is_good[rows] = False

    def stay_inside(self) -> None:
        """Leave over the values that ended too early."""
        self.is_good &= self.at <= self.ends
        np.minimum(self.at, self.ends, out=self.at)

    def some(self, rows: Ints) -> _Cursors:
        """The cursors of some values."""
        return _Cursors(self.data, self.at[rows], self.ends[rows], self.is_good[rows])

    def put(self, rows: Ints, moved: _Cursors) -> None:
        """Take over where the cursors of some values are now."""
        self.at[rows], self.is_good[rows] = moved.at, moved.is_good


# Reads a field of each value, and returns how its column is made: only of values that are all good.
_Make: TypeAlias = Callable[[], pa.Array]
_Read: TypeAlias = Callable[[_Cursors], _Make]


class FlatRows:
    """Decodes values of one record, given by the schema that it is decoded by and the shape of what is decoded."""

    def __init__(self, plain: Mapping[str, Any], shape: Objects, item_cells: int) -> None:
        """`item_cells` are those that an item of a list or a map has, as `size` counts them."""
        self._fields = _fields(plain, shape)
        self._item_cells = item_cells

    def parse(self, values: pa.Array) -> tuple[list[pa.Array], npt.NDArray[np.bool_]] | None:
        """The columns of the values that are whole records, and which these are; None if columns cannot hold them."""
        if self._item_cells and len(values) < _VALUES_MIN:
            return None
        lengths: Any = pc.fill_null(pc.binary_length(values), 0)
        # Of a large value the items must be counted first.
        is_good = np.asarray(values.is_valid()) & (np.asarray(lengths) <= VALUE_CELLS_MAX // max(1, self._item_cells))
        while True:
            good = values if is_good.all() else values.filter(pa.array(is_good))
            cursors = _cursors(good)
            made = [read(cursors) for read in self._fields]
            cursors.is_good &= cursors.at == cursors.ends
            if cursors.is_good.all():
                break
            # Once more without those that are none: all of the rest are good then.
            is_good[np.flatnonzero(is_good)[~cursors.is_good]] = False
        try:
            return [make() for make in made], is_good
        except (ArithmeticError, ValueError):
            return None


def is_flat(shape: Shape, is_in_list: bool = False) -> bool:
    """Whether there are no lists and maps within lists and maps."""
    if isinstance(shape, Objects):
        return all(is_flat(field, is_in_list) for _, field in shape.fields)
    if isinstance(shape, Scalars):
        return True
    return not is_in_list and is_flat(shape.items if isinstance(shape, Lists) else shape.values, True)


def _cursors(values: pa.Array) -> _Cursors:
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    held = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
    bounds -= bounds[0]
    padded = np.append(held, np.zeros(_PADDING, np.uint8))
    return _Cursors(padded, bounds[:-1].copy(), bounds[1:], np.ones(len(values), bool))


def _fields(plain: Mapping[str, Any], shape: Objects) -> list[_Read]:
    return [_read(of["type"], field) for of, (_, field) in zip(plain["fields"], shape.fields, strict=True)]


def _read(plain: Any, shape: Shape) -> _Read:
    """How a field of this type is read."""
    if isinstance(plain, list):
        return partial(_read_union, [None if each == "null" else _read(each, shape) for each in plain])
    named = plain["type"] if isinstance(plain, Mapping) else plain
    if isinstance(shape, Objects):
        return partial(_read_record, _fields(plain, shape), list(shape.type))
    if isinstance(shape, Lists):
        return partial(_read_list, _read(plain["items"], shape.items), shape.type)
    if isinstance(shape, Maps):
        key = partial(_read_bytes, "string", Scalars(partial(pa.array, type=pa.string())))
        return partial(_read_map, key, _read(plain["values"], shape.values), shape.type)
    if named == "enum":
        return partial(_read_enum, pa.array(plain["symbols"], pa.string()))
    if named == "fixed":
        return partial(_read_fixed, plain["size"], shape)
    if named in _FLOATS:
        return partial(_read_floats, *_FLOATS[named], shape)
    return partial({"long": _read_numbers, "boolean": _read_booleans}.get(named, _read_bytes), named, shape)


def _read_numbers(_: str, shape: Scalars, cursors: _Cursors) -> _Make:
    return partial(shape.array, cursors.number())


def _read_booleans(_: str, shape: Scalars, cursors: _Cursors) -> _Make:
    found = cursors.data[cursors.at]
    cursors.take(1)
    cursors.refuse(found > 1)
    return partial(shape.array, found == 1)


def _read_floats(kind: str, size: int, shape: Scalars, cursors: _Cursors) -> _Make:
    starts = cursors.take(size)
    # Arrow widens a number that is none without a word; numpy warns.
    return lambda: shape.array(
        pa.array(cursors.data[starts[:, None] + np.arange(size)].view(kind).ravel()).cast(pa.float64())
    )


def _read_bytes(named: str, shape: Scalars, cursors: _Cursors) -> _Make:
    sizes = cursors.number()
    starts = cursors.take(sizes)

    def make() -> pa.Array:
        found = _gathered(cursors.data, starts, sizes)
        return shape.array(found.cast(pa.string()) if named == "string" else found)

    return make


def _read_fixed(size: int, shape: Scalars, cursors: _Cursors) -> _Make:
    starts = cursors.take(size)
    return lambda: shape.array(_gathered(cursors.data, starts, np.full(len(starts), size, np.int64)))


def _read_enum(symbols: pa.Array, cursors: _Cursors) -> _Make:
    found = cursors.number()
    cursors.refuse((found < 0) | (found >= len(symbols)))
    return lambda: symbols.take(pa.array(found))


def _read_record(fields: Sequence[_Read], columns: list[pa.Field], cursors: _Cursors) -> _Make:
    made = [read(cursors) for read in fields]
    return lambda: pa.StructArray.from_arrays([make() for make in made], fields=columns)


def _read_union(branches: Sequence[_Read | None], cursors: _Cursors) -> _Make:
    """One type, and null perhaps: it is read of those that have it."""
    branch = cursors.number()
    wanted = next(place for place, each in enumerate(branches) if each is not None)
    cursors.refuse((branch < 0) | (branch >= len(branches)))
    rows = np.flatnonzero(branch == wanted)
    moved = cursors.some(rows)
    read = branches[wanted]
    assert read is not None
    make = read(moved)
    cursors.put(rows, moved)
    if rows.size == branch.size:
        return make
    places = np.cumsum(branch == wanted) - 1
    return lambda: make().take(pa.array(places, mask=branch != wanted))


def _read_list(item: _Read, kind: pa.DataType, cursors: _Cursors) -> _Make:
    counts, made, places = _read_items([item], cursors)
    return lambda: pa.ListArray.from_arrays(_offsets(counts), _in_order(made[0], places, kind.value_type), kind)


def _read_map(key: _Read, value: _Read, kind: pa.DataType, cursors: _Cursors) -> _Make:
    counts, (keys, values), places = _read_items([key, value], cursors)

    def make() -> pa.Array:
        found = _in_order(keys, places, pa.string())
        numbers = np.asarray(found.dictionary_encode().indices).astype(np.int64)
        rows = np.repeat(np.arange(len(counts)), counts)
        if len(np.unique(rows * max(1, len(found)) + numbers)) < len(found):
            raise ValueError("a key occurs twice")
        return pa.MapArray.from_arrays(_offsets(counts), found, _in_order(values, places, kind.item_type), kind)

    return make


def _read_items(item: Sequence[_Read], cursors: _Cursors) -> tuple[Ints, list[list[_Make]], Ints]:
    """Read the items of each value, which are one block.

    Returns how many each has, how arrays of the parts of an item are made, one for the first items, one for the second,
    and on, and where the items of the first value are in all of these, then those of the second, and on.
    """
    counts = cursors.number()
    cursors.refuse((counts < 0) | (counts > _ITEMS_MAX))
    counts = np.where(cursors.is_good, counts, 0)
    made: list[list[_Make]] = [[] for _ in item]
    order: list[Ints] = []
    for place in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > place)
        moved = cursors.some(rows)
        for read, parts in zip(item, made, strict=True):
            parts.append(read(moved))
        cursors.put(rows, moved)
        order.append(rows)
    rows = np.flatnonzero(counts > 0)
    moved = cursors.some(rows)
    moved.refuse(moved.number() != 0)
    cursors.put(rows, moved)
    owners = np.concatenate([np.zeros(0, np.int64), *order])
    return counts, made, np.argsort(owners, kind="stable")


def _in_order(made: Sequence[_Make], places: Ints, kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays([make() for make in made] or [pa.array([], kind)]).take(pa.array(places))


def _offsets(counts: Ints) -> pa.Array:
    return pa.array(np.append(0, np.cumsum(counts)), pa.int32())


def _gathered(data: Bytes, starts: Ints, sizes: Ints) -> pa.Array:
    """Bytes that begin at places, one after another."""
    offsets = np.append(0, np.cumsum(sizes))
    places = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)

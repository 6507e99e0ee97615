"""How large values may become as columns: judged by themselves, before memory is taken for them.

A list, or a map, has a cell of each of its items' columns, whether the item has that field or not, so some kilobytes of
empty objects can become gigabytes of columns. What is parsed at once is bounded by the cells that it could have at
most, and one value by those that it has. How deep a value may be nested is a fixed number too: how deep Python's own
limit lets one decode depends on its version and on the caller, and a row must be the same wherever it is parsed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from headrace.core.limits import VALUE_CELLS_MAX, VALUE_DEPTH_MAX
from headrace.core.values.types import ListOf, MapOf, ObjectOf, ValueField, ValueType

TOO_DEEP: Final = "the value is nested too deeply"
TOO_MANY_ITEMS: Final = "the lists and maps of the value have too many items for columns"
# What an item takes beside its cells: it is an object of Python for a while.
_ITEM_CELLS: Final = 4
_CHUNK_BYTES: Final = 1 << 20
_QUOTE, _COMMA, _COLON = b'",:'
_NO_MARKS: Final = bytes({*range(256)} - {*b'",:[]{}'})


def cells_of_row(fields: Iterable[ValueField]) -> int:
    """How many cells a row has, without the items of its lists and maps."""
    return sum(_cells(field.type) for field in fields)


def cells_of_item(fields: Iterable[ValueField]) -> int:
    """How many cells an item of a list or a map has at most; 0 if there are none."""
    return max((_most(field.type) for field in fields), default=0)


def has_maps(fields: Iterable[ValueField]) -> bool:
    """Whether a map is anywhere in the fields."""
    return any(_has_map(field.type) for field in fields)


def _cells(kind: ValueType) -> int:
    # An object is one of Python too, whatever is in it.
    return _ITEM_CELLS + cells_of_row(kind.fields) if isinstance(kind, ObjectOf) else 1


def _most(kind: ValueType) -> int:
    if isinstance(kind, ObjectOf):
        return cells_of_item(kind.fields)
    if isinstance(kind, ListOf):
        return max(_ITEM_CELLS + _cells(kind.items), _most(kind.items))
    # A member has a key as well.
    return max(_ITEM_CELLS + 1 + _cells(kind.values), _most(kind.values)) if isinstance(kind, MapOf) else 0


def _has_map(kind: ValueType) -> bool:
    if isinstance(kind, ObjectOf):
        return has_maps(kind.fields)
    return isinstance(kind, MapOf) or (isinstance(kind, ListOf) and _has_map(kind.items))


def json_excess(value: bytes, item_cells: int, with_maps: bool = False) -> str | None:
    """Why a JSON value is too large to be decoded, or None; of what is no JSON it may say either.

    With maps in the schema, a member of an object may be an item or not: what is counted then are the objects that
    decoding makes, and items are counted in what was decoded.
    """
    if len(value) <= VALUE_DEPTH_MAX:
        return None
    opened = value.count(b"[") + value.count(b"{")
    if opened <= VALUE_DEPTH_MAX and (opened + value.count(b",")) * item_cells <= VALUE_CELLS_MAX:
        return None
    # Only here strings are told from the rest: an escaped quotation mark does not end one.
    if b"\\" in value:
        value = value.replace(rb"\\", b"").replace(rb"\"", b"")
    value = value.translate(None, _NO_MARKS)
    depth = opens = commas = colons = 0
    is_text = False
    for begin in range(0, len(value), _CHUNK_BYTES):
        marks = np.frombuffer(value, np.uint8, min(_CHUNK_BYTES, len(value) - begin), begin)
        quoted = np.cumsum(marks == _QUOTE, dtype=np.uint8) + np.uint8(is_text)
        is_text = bool(quoted[-1] & 1)
        marks = marks[(quoted & 1) == 0]
        # One bit is between [ and {, and between ] and }.
        bracket = marks | 0x20
        steps = (bracket == ord("{")).astype(np.int8) - (bracket == ord("}")).astype(np.int8)
        depths = depth + np.cumsum(steps[steps != 0], dtype=np.int64)
        if depths.size:
            if depths.max() > VALUE_DEPTH_MAX:
                return TOO_DEEP
            depth = int(depths[-1])
        opens += int((steps > 0).sum())
        commas += int((marks == _COMMA).sum())
        colons += int((marks == _COLON).sum())
    # A comma is after an item or a member, and each member has a colon.
    cells = opens * item_cells + commas * _ITEM_CELLS if with_maps else (opens + commas - colons) * item_cells
    return TOO_MANY_ITEMS if cells > VALUE_CELLS_MAX else None

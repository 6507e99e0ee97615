"""Whether bytes are a record of an Avro schema, and how many items its lists and maps have, before they are decoded.

fastavro decodes some bytes that are no record: it takes a negative branch of a union, or symbol of an enum, from the
end, any byte for a boolean, and numbers of any length. So a value is first walked through. An item has one byte or
more, and decoded it may be many objects of Python: nothing is kept here, and the walk ends as soon as there are more
items than columns may have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

_WIDTHS: Final = {"float": 4, "double": 8}
_NUMBER_BITS: Final = 64


class TooManyItems(ValueError):
    """A value has more items than were allowed."""


@dataclass(slots=True)
class _Walk:
    value: bytes
    items_left: int
    at: int = 0

    def number(self) -> int:
        """Read a number; IndexError if the value ends in it."""
        shift = found = 0
        while True:
            byte = self.value[self.at]
            self.at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= _NUMBER_BITS:
                raise ValueError("a number has more than 64 bits")
        if found >> _NUMBER_BITS:
            raise ValueError("a number has more than 64 bits")
        return (found >> 1) ^ -(found & 1)

    def choice(self, count: int) -> int:
        """Read the number of one of some branches or symbols."""
        found = self.number()
        if not 0 <= found < count:
            raise ValueError("a union has no such branch, or an enum no such symbol")
        return found

    def boolean(self) -> None:
        """Pass over a byte that is 0 or 1."""
        if self.value[self.at] > 1:
            raise ValueError("a boolean is neither 0 nor 1")
        self.at += 1

    def skip(self, size: int) -> None:
        """Pass over bytes."""
        if not 0 <= size <= len(self.value) - self.at:
            raise IndexError("the value ends before its bytes do")
        self.at += size

    def take(self, items: int) -> None:
        """Count items."""
        self.items_left -= items
        if self.items_left < 0:
            raise TooManyItems


_Skip: TypeAlias = Callable[[_Walk], object]


class RecordWalk:
    """Walks through values of one record, given by the schema that it is decoded by."""

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self._fields = [_skip(field["type"]) for field in plain["fields"]]

    def fields(self, value: bytes, items_max: int) -> int:
        """How many of the record's fields a value has: one of before the schema grew ends early.

        Raises TooManyItems if there are more; another ValueError, or IndexError, if it is no record of the schema.
        """
        walk, count = _Walk(value, items_max), 0
        for skip in self._fields:
            if walk.at == len(value):
                break
            skip(walk)
            count += 1
        if walk.at != len(value):
            raise ValueError("the value goes on after the record")
        return count


def _skip(plain: Any) -> _Skip:
    if isinstance(plain, list):
        return partial(_skip_union, [_skip(each) for each in plain])
    named = plain["type"] if isinstance(plain, Mapping) else plain
    if named == "record":
        return partial(_skip_all, [_skip(field["type"]) for field in plain["fields"]])
    if named in ("array", "map"):
        item = _skip(plain["items" if named == "array" else "values"])
        return partial(_skip_blocks, item if named == "array" else partial(_skip_all, [_skip_bytes, item]))
    if named in ("string", "bytes"):
        return _skip_bytes
    if named == "enum":
        return partial(_Walk.choice, count=len(plain["symbols"]))
    if named in ("long", "boolean"):
        return _Walk.number if named == "long" else _Walk.boolean
    return partial(_Walk.skip, size=0 if named == "null" else _WIDTHS.get(named) or plain["size"])


def _skip_all(fields: Sequence[_Skip], walk: _Walk) -> None:
    for skip in fields:
        skip(walk)


def _skip_union(branches: Sequence[_Skip], walk: _Walk) -> None:
    branches[walk.choice(len(branches))](walk)


def _skip_bytes(walk: _Walk) -> None:
    walk.skip(walk.number())


def _skip_blocks(item: _Skip, walk: _Walk) -> None:
    """Blocks of items until an empty one; a negative count is followed by the size of its block."""
    while count := walk.number():
        if count < 0:
            count = -count
            walk.number()
        walk.take(count)
        for _ in range(count):
            item(walk)

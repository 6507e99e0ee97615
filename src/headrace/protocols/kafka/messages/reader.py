"""Reads a request from bytes that anyone may have sent.

Nothing is allocated for what a length claims: arrays must have at least a byte for each element, and not too many of
them, and strings must be there. What is wrong raises `BadRequest`. Records stay where they are, as a view on the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from headrace.protocols.kafka.messages.schema import NUMBERS, Numbers, SchemaField, Struct

# Tags that a client may send and we do not know.
_TAGS_MAX: Final = 64
# Strings of flexible versions could be longer than those of others.
TEXT_BYTES_MAX: Final = 0x7FFF
# Elements of all arrays of a message: an element may take a byte, and some hundred in memory. Requests have limits of
# their own (`apis.table`).
ELEMENTS_MAX: Final = 500_000


class BadRequest(Exception):
    """Bytes that are not the request they say they are."""


class TooManyElements(BadRequest):
    """Arrays with more elements than the reader may read."""


class FieldReader:
    """Reads fields one after another; its arrays have at most `elements_max` elements together."""

    def __init__(self, data: memoryview, elements_max: int = ELEMENTS_MAX) -> None:
        self.data = data
        self._elements_max = elements_max
        self._size = len(data)
        self.position = 0
        # Of all arrays that were read.
        self.elements = 0

    @property
    def left(self) -> int:
        """How many bytes were not read yet."""
        return self._size - self.position

    def struct(self, described: Struct) -> SimpleNamespace:
        """A struct, with a field for each of its schema."""
        flexible = described.is_flexible
        values: dict[str, Any] = {}
        for step in described.steps:
            if isinstance(step, Numbers):
                start = self._skip(step.form.size)
                values.update(zip(step.names, step.form.unpack_from(self.data, start), strict=True))
            else:
                values[step.name] = self._field(step, flexible)
        if flexible:
            if described.tagged:
                values |= described.tagged_defaults
            if count := self._tag_count():
                values |= self._tagged(described, count)
        return SimpleNamespace(**values)

    def number(self, kind: str) -> Any:
        """A number of fixed length."""
        form = NUMBERS[kind]
        return form.unpack_from(self.data, self._skip(form.size))[0]

    def bytes(self, size: int) -> memoryview:
        """The next bytes."""
        start = self._skip(size)
        return self.data[start : self.position]

    def _skip(self, size: int) -> int:
        """Pass over bytes, which must exist; where they begin."""
        start = self.position
        end = start + size
        if end > self._size:
            raise BadRequest(f"it ends {end - self._size} bytes too early")
        self.position = end
        return start

    def unsigned_varint(self) -> int:
        """A length, a count or a tag of flexible versions."""
        position = self.position
        if position < self._size and (number := self.data[position]) < 0x80:
            self.position = position + 1
            return number
        number = 0
        for shift in range(0, 35, 7):
            byte = self.data[self._skip(1)]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise BadRequest("a variable-length number has more than five bytes")

    def text(self, is_flexible: bool) -> str | None:
        """A string, or null."""
        part = self.nullable_bytes(is_flexible, "int16")
        if part is None:
            return None
        if len(part) > TEXT_BYTES_MAX:
            raise BadRequest(f"a string has {len(part)} bytes: at most {TEXT_BYTES_MAX} are accepted")
        try:
            return str(part, "utf-8")
        except UnicodeDecodeError:
            raise BadRequest("a string is not UTF-8") from None

    def nullable_bytes(self, is_flexible: bool, length_kind: str) -> memoryview | None:
        """Bytes with their length before them, or null."""
        length = self.unsigned_varint() - 1 if is_flexible else self.number(length_kind)
        if length < -1:
            raise BadRequest(f"a length is {length}")
        return None if length == -1 else self.bytes(length)

    def skip_tags(self) -> None:
        """Leave out the tagged fields of a header."""
        for _ in range(self._tag_count()):
            self.unsigned_varint()
            self.bytes(self.unsigned_varint())

    def _tag_count(self) -> int:
        count = self.unsigned_varint()
        if count > _TAGS_MAX:
            raise BadRequest(f"{count} tagged fields: at most {_TAGS_MAX} are accepted")
        return count

    def _tagged(self, described: Struct, count: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        known = {field.tag: field for field in described.tagged}
        for _ in range(count):
            tag, part = self.unsigned_varint(), FieldReader(self.bytes(self.unsigned_varint()), self._elements_max)
            if tag in known:
                part.elements = self.elements
                values[known[tag].name] = part._field(known[tag], True)
                self.elements = part.elements
        return values

    def _field(self, field: SchemaField, is_flexible: bool) -> Any:
        if not field.is_array:
            return self._value(field, is_flexible)
        count = self.unsigned_varint() - 1 if is_flexible else self.number("int32")
        if count == -1 and field.is_nullable:
            return None
        if not 0 <= count <= self.left:
            raise BadRequest(f"{field.name} says it has {count} elements, with {self.left} bytes left")
        self.elements += count
        if self.elements > self._elements_max:
            rule = f"at most {self._elements_max} are accepted"
            raise TooManyElements(f"its arrays have {self.elements} elements or more: {rule}")
        return self._all_numbers(field, count) or [self._value(field, is_flexible) for _ in range(count)]

    def _all_numbers(self, field: SchemaField, count: int) -> list[Any]:
        """An array of structs that have only numbers, and no tags; none if it is another, or not to be read."""
        described = field.struct
        if described is None or described.form is None or described.row is None or field.is_nullable:
            return []
        end = self.position + count * described.form.size
        if end > len(self.data):
            return []
        size, data = described.form.size, self.data[self.position : end]
        rows: Iterable[tuple[Any, ...]] = described.form.iter_unpack(data)
        if described.is_flexible:
            # The count of its tags is the last byte of each.
            if any(bytes(data[size - 1 :: size])):
                return []
            more = tuple(described.tagged_defaults.values())
            rows = (row[:-1] + more for row in rows)
        self.position = end
        return list(map(described.row, rows))

    def _value(self, field: SchemaField, is_flexible: bool) -> Any:
        kind = field.kind
        value: Any
        if kind in NUMBERS:
            return self.number(kind)
        if kind == "uuid":
            return UUID(bytes=bytes(self.bytes(16)))
        if field.struct is not None:
            if field.is_nullable and not field.is_array and self.number("int8") < 0:
                return None
            return self.struct(field.struct)
        if kind == "string":
            value = self.text(is_flexible)
        else:
            value = self.nullable_bytes(is_flexible, "int32")
            if kind == "bytes" and value is not None:
                value = bytes(value)
        if value is None and (not field.is_nullable or field.is_array):
            raise BadRequest(f"{field.name} is null")
        return value

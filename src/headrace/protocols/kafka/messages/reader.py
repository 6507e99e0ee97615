"""Reads a request from bytes that anyone may have sent.

Nothing is allocated for what a length claims: arrays must have at least a byte for each element, and strings must be
there. What is wrong raises `BadRequest`. Records stay where they are, as a view on the bytes.
"""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from headrace.protocols.kafka.messages.schema import SchemaField, Struct

NUMBERS: Final = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint8": struct.Struct(">B"),
    "uint16": struct.Struct(">H"),
    "uint32": struct.Struct(">I"),
    "uint64": struct.Struct(">Q"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
    "error_code": struct.Struct(">h"),
    "timedelta_i32": struct.Struct(">i"),
    "timedelta_i64": struct.Struct(">q"),
    "datetime_i64": struct.Struct(">q"),
}
# Tags that a client may send and we do not know.
_TAGS_MAX: Final = 64


class BadRequest(Exception):
    """Bytes that are not the request they say they are."""


class FieldReader:
    """Reads fields one after another."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = 0

    @property
    def left(self) -> int:
        """How many bytes were not read yet."""
        return len(self.data) - self.position

    def struct(self, described: Struct) -> SimpleNamespace:
        """A struct, with a field for each of its schema."""
        flexible = described.is_flexible
        values = {field.name: self._field(field, flexible) for field in described.fields}
        if flexible:
            values |= {field.name: field.default for field in described.tagged}
            values |= self._tagged(described)
        return SimpleNamespace(**values)

    def number(self, kind: str) -> Any:
        """A number of fixed length."""
        form = NUMBERS[kind]
        return form.unpack(self.bytes(form.size))[0]

    def bytes(self, size: int) -> memoryview:
        """The next bytes."""
        end = self.position + size
        if end > len(self.data):
            raise BadRequest(f"it ends {end - len(self.data)} bytes too early")
        part = self.data[self.position : end]
        self.position = end
        return part

    def unsigned_varint(self) -> int:
        """A length, a count or a tag of flexible versions."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self.bytes(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise BadRequest("a variable-length number has more than five bytes")

    def text(self, is_flexible: bool) -> str | None:
        """A string, or null."""
        part = self.nullable_bytes(is_flexible, "int16")
        if part is None:
            return None
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

    def _tagged(self, described: Struct) -> dict[str, Any]:
        known = {field.tag: field for field in described.tagged}
        values: dict[str, Any] = {}
        for _ in range(self._tag_count()):
            tag, part = self.unsigned_varint(), FieldReader(self.bytes(self.unsigned_varint()))
            if tag in known:
                values[known[tag].name] = part._field(known[tag], True)
        return values

    def _field(self, field: SchemaField, is_flexible: bool) -> Any:
        if not field.is_array:
            return self._value(field, is_flexible)
        count = self.unsigned_varint() - 1 if is_flexible else self.number("int32")
        if count == -1 and field.is_nullable:
            return None
        if not 0 <= count <= self.left:
            raise BadRequest(f"{field.name} says it has {count} elements, with {self.left} bytes left")
        return [self._value(field, is_flexible) for _ in range(count)]

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

"""Writes a response: a mapping from the names of fields to values, by the schema of the version that was asked for.

What the schema does not have is left out, and what the mapping does not name has its default: so a handler names every
field that any version knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from headrace.protocols.kafka.messages.rows import NumberRows
from headrace.protocols.kafka.messages.schema import NUMBERS, Numbers, SchemaField, Struct

# Parts are joined when there are more: a number of a few bytes is an object of forty.
_PARTS_MAX: Final = 4_096
_NO_UUID = bytes(16)
# Lengths and counts of one byte.
_SMALL = [bytes([number]) for number in range(0x80)]


class Writer:
    """Collects the parts of a message; those of a message of many parts are joined on the way."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        # How many of them are joined ones.
        self._joined = 0

    def struct(self, described: Struct, values: Mapping[str, Any]) -> None:
        """A struct and everything in it."""
        flexible = described.is_flexible
        for step in described.steps:
            if isinstance(step, Numbers):
                self.parts.append(step.form.pack(*map(values.get, step.names, step.defaults)))
            elif step.name in values:
                self._field(step, values[step.name], flexible)
            else:
                self.parts.append(_default_bytes(step, flexible))
        if flexible:
            if described.tagged:
                self._tagged(described, values)
            else:
                self.parts.append(_SMALL[0])

    def number(self, kind: str, value: Any) -> None:
        """A number of fixed length."""
        self.parts.append(NUMBERS[kind].pack(value))

    def unsigned_varint(self, number: int) -> None:
        """A length, a count or a tag of flexible versions."""
        if number < 0x80:
            self.parts.append(_SMALL[number])
            return
        coded = bytearray()
        while number >= 0x80:
            coded.append(number & 0x7F | 0x80)
            number >>= 7
        coded.append(number)
        self.parts.append(bytes(coded))

    def join(self) -> bytes:
        """All of it."""
        return b"".join(self.parts)

    def _tagged(self, described: Struct, values: Mapping[str, Any]) -> None:
        given = [field for field in described.tagged if values.get(field.name, field.default) != field.default]
        self.unsigned_varint(len(given))
        for field in given:
            inner = Writer()
            inner._field(field, values[field.name], True)
            body = inner.join()
            self.unsigned_varint(field.tag or 0)
            self.unsigned_varint(len(body))
            self.parts.append(body)

    def _field(self, field: SchemaField, value: Any, is_flexible: bool) -> None:
        if not field.is_array:
            self._value(field, value, is_flexible)
            return
        count = -1 if value is None else len(value)
        if is_flexible:
            self.unsigned_varint(count + 1)
        else:
            self.number("int32", count)
        if isinstance(value, NumberRows):
            self.parts.append(value.encoded(lambda element: _encoded(field, element, is_flexible)))
            return
        for element in value or ():
            self._value(field, element, is_flexible)
            if len(self.parts) - self._joined > _PARTS_MAX:
                self.parts[self._joined :] = [b"".join(self.parts[self._joined :])]
                self._joined += 1

    def _value(self, field: SchemaField, value: Any, is_flexible: bool) -> None:
        kind = field.kind
        if kind in NUMBERS:
            self.number(kind, value)
        elif kind == "uuid":
            self.parts.append(_NO_UUID if value is None else value.bytes)
        elif field.struct is not None:
            if field.is_nullable and not field.is_array:
                self.number("int8", -1 if value is None else 1)
            if value is not None:
                self.struct(field.struct, value)
        elif kind == "string":
            self._bytes(None if value is None else value.encode(), is_flexible, "int16")
        else:
            self._bytes(value, is_flexible, "int32")

    def _bytes(self, value: bytes | memoryview | None, is_flexible: bool, length_kind: str) -> None:
        length = -1 if value is None else len(value)
        if is_flexible:
            self.unsigned_varint(length + 1)
        else:
            self.number(length_kind, length)
        if value is not None:
            self.parts.append(value)


def _encoded(field: SchemaField, element: Any, is_flexible: bool) -> bytes:
    """One element of an array."""
    writer = Writer()
    writer._value(field, element, is_flexible)
    return writer.join()


@cache
def _default_bytes(field: SchemaField, is_flexible: bool) -> bytes:
    """A field that a response does not name."""
    writer = Writer()
    writer._field(field, field.default, is_flexible)
    return writer.join()

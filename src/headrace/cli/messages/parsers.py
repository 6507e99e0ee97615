"""How the lines of `headrace produce` become columns: plain text with keys and attributes, or JSON. Pure.

JSON lines are as `headrace consume --json` prints them, so that what was printed can be published again byte for byte:
value, key, attributes, codec and creation time. Offset, broker time and source belong to the message that was read, and
are left out: the seqnos of a source that wrote to several partitions are not in order there, and would be taken for
duplicates.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.lines import split_keys
from headrace.core.messages import ATTRIBUTES, PUBLISH_SCHEMA, READ_SCHEMA
from headrace.wire.json import Encoding

Columns = dict[str, pa.Array]


class LineParser(Protocol):
    """Turns lines into columns of messages; an error names the line, counted from `first`."""

    def columns(self, lines: pa.Array, first: int) -> Columns: ...


@dataclass(frozen=True, slots=True)
class TextParser:
    """Plain lines: attributes and key before their separators, if there are any; one text may stand for null."""

    key_separator: bytes | None = None
    attributes_separator: bytes | None = None
    null_value: bytes | None = None

    def columns(self, lines: pa.Array, first: int) -> Columns:
        """The columns of some lines."""
        found: Columns = {"value": lines}
        if self.attributes_separator is not None:
            heads, found["value"] = split_keys(lines, self.attributes_separator)
            rows = [_attributes(head, first + row) for row, head in enumerate(heads.to_pylist())]
            found["attributes"] = pa.array(rows, ATTRIBUTES)
        if self.key_separator is not None:
            found["key"], found["value"] = split_keys(found["value"], self.key_separator)
        if self.null_value is not None:
            values = found["value"]
            is_null = pc.equal(values, pa.scalar(self.null_value, pa.binary()))
            found["value"] = pc.if_else(is_null, pa.scalar(None, pa.binary()), values)
        return found


def _attributes(head: bytes | None, line: int) -> list[tuple[str, bytes]] | None:
    """`name=value,name=value` as `consume --format '{attributes}'` prints it; none if it is empty."""
    if not head:
        return None
    pairs = []
    for part in head.split(b","):
        name, equals, value = part.partition(b"=")
        if not name or not equals:
            rule = "write them as NAME=VALUE,NAME=VALUE before the separator"
            raise Failure(Exit.REFUSED, f"line {line}: attributes are {head[:100]!r}: {rule}")
        pairs.append((name.decode(errors="replace"), value))
    return pairs


class _JsonMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message as `consume --json` prints it. A value that is neither text nor null is published as its JSON."""

    value: Any
    encoding: Encoding = "text"
    key: str | None = None
    attributes: dict[str, str | None] | None = None
    codec: str | None = None
    created_at: datetime | None = None
    partition: int | None = None
    # Of the message that was read, not of the one to write.
    topic: str | None = None
    offset: int | None = None
    timestamp: datetime | None = None
    producer_id: str | None = None
    message_group_id: str | None = None
    seqno: int | None = None


@dataclass(frozen=True, slots=True)
class JsonParser:
    """JSON lines, each a message; with its partition, and its offset, if they are to be kept."""

    keeps_partitions: bool = False
    keeps_places: bool = False

    def columns(self, lines: pa.Array, first: int) -> Columns:
        """The columns of some lines; those that no message has are left out."""
        rows = [self._row(line, first + row) for row, line in enumerate(lines.to_pylist())]
        fields = [*PUBLISH_SCHEMA, READ_SCHEMA.field("offset")]
        return {
            field.name: pa.array([row.get(field.name) for row in rows], field.type)
            for field in fields
            if field.name == "value" or any(row.get(field.name) is not None for row in rows)
        }

    def _row(self, line: bytes, number: int) -> Mapping[str, Any]:
        try:
            message = _DECODER.decode(line)
            row: dict[str, Any] = {"value": _value(message), "codec": message.codec, "created_at": message.created_at}
            row["key"] = _bytes(message.key, message.encoding)
            if message.attributes is not None:
                row["attributes"] = [
                    (name, _bytes(item, message.encoding)) for name, item in message.attributes.items()
                ]
        except (msgspec.DecodeError, UnicodeError, binascii.Error) as error:
            rule = 'each line must be a message such as {"value": "text", "key": "k"}'
            raise Failure(Exit.REFUSED, f"line {number} is {line[:60]!r}: {rule}: {error}") from None
        if self.keeps_partitions or self.keeps_places:
            row["partition"] = message.partition
        if self.keeps_places:
            row["offset"] = message.offset
        return row


_DECODER = msgspec.json.Decoder(_JsonMessage)


def _value(message: _JsonMessage) -> bytes | None:
    if isinstance(message.value, str | None):
        return _bytes(message.value, message.encoding)
    return msgspec.json.encode(message.value)


def _bytes(text: str | None, encoding: Encoding) -> bytes | None:
    if text is None:
        return None
    return base64.b64decode(text, validate=True) if encoding == "base64" else text.encode()

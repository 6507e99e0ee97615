"""Messages as lines: by a format with fields, or as JSON.

On a terminal, control characters in a message are escaped, so that no message can move the cursor, change the title or
type on behalf of the user. Otherwise bytes are printed as they are. A null value is printed as `null`, and an attribute
whose value is null as its name alone; other fields that are null are left empty.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.cli.commands.topics.consume import FIELDS
from headrace.cli.exits import Exit, Failure
from headrace.wire.json import messages_of

_PART: Final = re.compile(r"\{\{|\}\}|\{([a-z_]*)\}|[{}]")
_ESCAPES: Final = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
# All but tab and line feed, including the ISO 6429 controls above 127, which terminals obey too.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NULL: Final = b"null"
_ESCAPE: Final = re.compile(r"\\[tnr0\\]")


class LineFormat:
    """How a message is printed: literals and fields."""

    def __init__(self, literals: list[bytes], fields: list[str]) -> None:
        self._literals = literals
        self._fields = fields
        self._show = _shown_on_terminal if sys.stdout.isatty() else _shown

    def lines(self, batch: pa.RecordBatch, topic: str) -> Iterator[bytes]:
        """Format one line per message; reads only the columns that are printed."""
        columns: list[Iterable[bytes]] = [repeat(self._literals[0], batch.num_rows)]
        for field, literal in zip(self._fields, self._literals[1:], strict=True):
            columns += (self._column(field, batch, topic), repeat(literal))
        yield from map(b"".join, zip(*columns, repeat(b"\n"), strict=False))

    def _column(self, field: str, batch: pa.RecordBatch, topic: str) -> Iterable[bytes]:
        if field == "topic":
            return repeat(topic.encode())
        column = batch.column(field)
        if field == "value" and column.null_count:
            return (_NULL if value is None else self._show(value) for value in column.to_pylist())
        return map(self._show, column.to_pylist())


def parse_format(text: str) -> LineFormat:
    """Parse a format; escapes such as `\\t` are allowed, and `{{` is a literal brace."""
    literals: list[bytes] = [b""]
    fields: list[str] = []
    end = 0
    for match in _PART.finditer(text):
        literals[-1] += _literal(text[end : match.start()])
        end = match.end()
        if match[0] in ("{{", "}}"):
            literals[-1] += match[0][:1].encode()
        elif match[1] in FIELDS:
            fields.append(match[1])
            literals.append(b"")
        else:
            raise Failure(
                Exit.USAGE, f"--format has {match[0]!r}: fields are {', '.join(FIELDS)}; write {{{{ for a brace"
            )
    literals[-1] += _literal(text[end:])
    return LineFormat(literals, fields)


def json_lines(batch: pa.RecordBatch, topic: str | None) -> Iterator[bytes]:
    """Messages as JSON, one per line, each with its topic if one is given."""
    is_terminal = sys.stdout.isatty()
    head = b"{" if topic is None else b'{"topic":' + msgspec.json.encode(topic) + b","
    for message in messages_of(batch, 0, "text").messages:
        encoded = head + msgspec.json.encode(message)[1:]
        yield (_json_on_terminal(encoded) if is_terminal else encoded) + b"\n"


def _shown_on_terminal(value: Any) -> bytes:
    text = _shown(value).decode(errors="backslashreplace")
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text).encode()


def _json_on_terminal(encoded: bytes) -> bytes:
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", encoded.decode()).encode()


def _literal(text: str) -> bytes:
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0]], text).encode()


def _shown(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    if isinstance(value, list):
        return b",".join(name.encode() + (b"" if item is None else b"=" + item) for name, item in value)
    return value.isoformat().encode() if hasattr(value, "isoformat") else str(value).encode()

"""Messages as lines: by a format with fields, or as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.cli.exits import Exit, Failure
from headrace.rest.formats import messages_of

FIELDS: Final = (
    "partition", "offset", "timestamp", "key", "value", "attributes", "codec", "created_at",
    "producer_id", "message_group_id", "seqno", "topic",
)  # fmt: skip
DEFAULT: Final = "{value}"

_PART: Final = re.compile(r"\{\{|\}\}|\{([a-z_]*)\}|[{}]")
_ESCAPES: Final = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
_ESCAPE: Final = re.compile(r"\\[tnr0\\]")

Line = Callable[[dict[str, Any]], bytes]


def parse_format(text: str, topic: str) -> Line:
    """How to print a message; `\\t` and the like are known, and `{{` is a brace."""
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
            raise Failure(Exit.USAGE, f"--format has {match[0]!r}: fields are {', '.join(FIELDS)}, a brace is doubled")
    literals[-1] += _literal(text[end:])

    def line(row: dict[str, Any]) -> bytes:
        row["topic"] = topic
        parts = [literals[0]]
        for field, literal in zip(fields, literals[1:], strict=True):
            parts += (_shown(row[field]), literal)
        return b"".join(parts) + b"\n"

    return line


def lines_of(table: pa.Table, line: Line | None) -> Iterator[bytes]:
    """The lines of some messages: by a format, or, without one, as JSON."""
    if line is not None:
        yield from map(line, table.to_pylist())
        return
    for batch in table.to_batches():
        for message in messages_of(batch, 0, "text").messages:
            yield msgspec.json.encode(message) + b"\n"


def _literal(text: str) -> bytes:
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0]], text).encode()


def _shown(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    if isinstance(value, list):
        return b",".join(name.encode() + b"=" + item for name, item in value)
    return value.isoformat().encode() if hasattr(value, "isoformat") else str(value).encode()

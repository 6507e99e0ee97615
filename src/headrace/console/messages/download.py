"""What a page shows, as a file: JSON Lines, CSV or Parquet. Pure."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.client.message import Message
from headrace.console.messages.payload import as_text
from headrace.console.view.text import iso
from headrace.core.messages import READ_SCHEMA

# Times are datetimes by their own name, and microseconds by another.
_MICROSECONDS: Final = {"timestamp": "timestamp_us", "created_at": "created_us"}

_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")

FORMATS: Final = {"jsonl": "JSON Lines", "csv": "CSV", "parquet": "Parquet"}


def encode(messages: Sequence[Message], form: str) -> bytes:
    """The messages as a file of one of the formats."""
    if form == "parquet":
        sink = io.BytesIO()
        pq.write_table(pa.table([_column(messages, field) for field in READ_SCHEMA], READ_SCHEMA), sink)
        return sink.getvalue()
    rows = [_row(message) for message in messages]
    if form == "csv":
        written = io.StringIO()
        writer = csv.DictWriter(written, list(_row(_EMPTY)))
        writer.writeheader()
        for row in rows:
            row["attributes"] = json.dumps(row["attributes"])
            writer.writerow({name: _no_formula(value) for name, value in row.items()})
        return written.getvalue().encode()
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _column(messages: Sequence[Message], kind: pa.Field) -> pa.Array:
    name = _MICROSECONDS.get(kind.name, kind.name)
    values = [getattr(message, name) for message in messages]
    if pa.types.is_map(kind.type):
        values = [None if each is None else list(each.items()) for each in values]
    return pa.array(values, kind.type)


def _row(message: Message) -> dict[str, Any]:
    return {
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": iso(message.timestamp_us),
        "key": _text(message.key),
        "value": _text(message.value),
        "attributes": {name: _text(value) for name, value in (message.attributes or {}).items()},
        "codec": message.codec,
        "created_at": None if message.created_us is None else iso(message.created_us),
        "producer_id": message.producer_id,
        "message_group_id": message.message_group_id,
        "seqno": message.seqno,
    }


def _no_formula(value: Any) -> Any:
    """A cell that a spreadsheet takes as text: what begins like a formula, and is no number, gets an apostrophe."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return value
    return value if _NUMBER.fullmatch(value) else "'" + value


def _text(value: bytes | None) -> str | None:
    """UTF-8 text, or `base64:` and the bytes."""
    if value is None:
        return None
    text = as_text(value)
    return text if text is not None else "base64:" + base64.b64encode(value).decode()


_EMPTY: Final = Message(0, 0, 0, b"")

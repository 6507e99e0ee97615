"""Messages as JSON: what the HTTP server returns, and what the command line prints and reads.

A message has the encoding of its bytes: text, or base64 if they are not valid text or the reader asked for it. A null
value is null, which is not empty. Of attributes with the same name JSON has the last. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec
import pyarrow as pa

from headrace.core.messages import READ_SCHEMA

Encoding = Literal["text", "base64"]


class MessageOut(msgspec.Struct, omit_defaults=True, gc=False):
    """A message. `encoding` is that of `value`, `key` and the values of `attributes`; null is not empty."""

    partition: int
    offset: int
    timestamp: datetime
    value: str | None
    encoding: Encoding = "text"
    key: str | None = None
    attributes: dict[str, str | None] | None = None
    codec: str | None = None
    created_at: datetime | None = None
    producer_id: str | None = None
    message_group_id: str | None = None
    seqno: int | None = None


class Messages(msgspec.Struct):
    """Messages of one partition, and the offset to continue at."""

    messages: list[MessageOut]
    next_offset: int


def messages_of(batch: pa.RecordBatch, offset: int, encoding: Encoding) -> Messages:
    """A batch read from `offset` on as JSON has it."""
    return Messages([_message(row, encoding) for row in batch.to_pylist()], offset + int(batch.num_rows))


def _message(row: dict[str, Any], encoding: Encoding) -> MessageOut:
    given = row["value"], row["key"], None if row["attributes"] is None else dict(row["attributes"])
    if encoding == "text":
        try:
            row["value"], row["key"], row["attributes"] = _shown(bytes.decode, *given)
            return MessageOut(**row)
        except UnicodeDecodeError:
            pass
    row["value"], row["key"], row["attributes"] = _shown(_encoded, *given)
    return MessageOut(**row, encoding="base64")


def _shown(
    show: Callable[[bytes], str], value: bytes | None, key: bytes | None, attributes: dict[str, bytes | None] | None
) -> tuple[str | None, str | None, dict[str, str | None] | None]:
    """Value, key and attributes as text; null stays null."""
    items = None
    if attributes is not None:
        items = {name: None if item is None else show(item) for name, item in attributes.items()}
    return None if value is None else show(value), None if key is None else show(key), items


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def table_of(messages: Iterable[MessageOut]) -> pa.Table:
    """Messages of JSON as a table like that of a fetch."""
    return pa.Table.from_pylist([_row(message) for message in messages], READ_SCHEMA)


def _row(message: MessageOut) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(message, name) for name in READ_SCHEMA.names}
    row["value"] = _decoded(message.value, message.encoding)
    row["key"] = _decoded(message.key, message.encoding)
    if message.attributes is not None:
        row["attributes"] = [(name, _decoded(item, message.encoding)) for name, item in message.attributes.items()]
    return row


def _decoded(text: str | None, encoding: Encoding) -> bytes | None:
    if text is None:
        return None
    return base64.b64decode(text) if encoding == "base64" else text.encode()

"""Messages and receipts as JSON and Arrow: the formats of bodies and answers.

JSON values are text, or base64 where the sender says so; messages in answers are as `wire.json` has them. Arrow
answers are IPC streams; Arrow bodies are read by `edge.arrow`.

Large bodies and answers are processed in threads. Decoding JSON holds the interpreter lock during each call into
msgspec or Arrow, so large ones are processed in pieces, between which other threads can run.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow as pa

from headrace.core.errors import InvalidInput, InvalidMessage
from headrace.core.limits import BATCH_ROWS_MAX, ID_CHARACTERS_MAX, LOOP_BYTES_MAX, PARTITIONS_MAX, SEQNO_MAX
from headrace.core.messages import PUBLISH_SCHEMA, join
from headrace.core.publish.receipts import STATUSES, WRITTEN, Receipts
from headrace.core.publish.state import CommitKey
from headrace.core.topics.settings import CODECS
from headrace.protocols.http.requests.strict_json import decode
from headrace.wire.json import Encoding, messages_of

ARROW: Final = "application/vnd.apache.arrow.stream"
JSON: Final = "application/json"
# The attribute that says what a value is, if the server knows.
CONTENT_TYPE_ATTRIBUTE: Final = "content-type"

# How many messages are decoded or encoded at once: a few milliseconds. Their structs hold no cycles, and there may be
# a million of them: the garbage collector, for which everyone waits, need not look at them.
PIECE_MESSAGES: Final = 1_000


def _documented(**schema: Any) -> msgspec.Meta:
    """A rule that the core checks on whole columns; it is only documented here."""
    return msgspec.Meta(extra_json_schema=schema)


class MessageIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message to publish. `value`, `key` and the values of `attributes` are in the encoding of the request.

    A value that is an object or a list is stored as JSON, with the attribute `content-type: application/json`. A value
    of null is null, which is not empty: it says that what the key names was deleted (a tombstone).
    """

    value: str | dict[str, msgspec.Raw] | list[msgspec.Raw] | None
    key: str | None = None
    attributes: dict[str, str | None] | None = None
    codec: Annotated[str, _documented(enum=list(CODECS))] | None = None
    created_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    producer_id: Annotated[str, _documented(maxLength=ID_CHARACTERS_MAX)] | None = None
    message_group_id: Annotated[str, _documented(maxLength=ID_CHARACTERS_MAX)] | None = None
    seqno: Annotated[int, _documented(minimum=0, maximum=SEQNO_MAX)] | None = None
    partition: Annotated[int, _documented(minimum=0, exclusiveMaximum=PARTITIONS_MAX)] | None = None


class CommitKeyIn(msgspec.Struct, forbid_unknown_fields=True):
    """Makes a publish idempotent: a number at or below the last one of its writer publishes nothing."""

    writer: Annotated[str, _documented(minLength=1, maxLength=ID_CHARACTERS_MAX)]
    number: Annotated[int, msgspec.Meta(ge=0, le=SEQNO_MAX)]


class PublishIn(msgspec.Struct, forbid_unknown_fields=True):
    """Messages to publish in one commit."""

    messages: Annotated[list[MessageIn], msgspec.Meta(max_length=BATCH_ROWS_MAX)]
    encoding: Encoding = "text"
    commit_key: CommitKeyIn | None = None


class _PublishParts(msgspec.Struct, forbid_unknown_fields=True):
    """The same with messages that are not decoded yet."""

    messages: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=BATCH_ROWS_MAX)]
    encoding: Encoding = "text"
    commit_key: CommitKeyIn | None = None


class ReceiptOut(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a message; partition and offset are null for what was not written.

    `duplicate`: it was written before. `conflict`: its seqno was used before, for another message.
    """

    partition: int | None
    offset: int | None
    status: Literal["written", "duplicate", "conflict"]


class Published(msgspec.Struct):
    """Receipts in the order sent."""

    receipts: list[ReceiptOut]


def publish_of_json(body: bytes) -> tuple[pa.RecordBatch, CommitKey | None]:
    """The messages of a JSON body as a batch, and its commit key; a large body is processed in a thread."""
    if len(body) <= LOOP_BYTES_MAX:
        publish = decode(body, PublishIn)
        return batch_of_json(publish.messages, publish.encoding), commit_key_of(publish.commit_key)
    parts = decode(body, _PublishParts)
    batches: list[pa.RecordBatch] = []
    for first in range(0, len(parts.messages), PIECE_MESSAGES):
        messages = [_decode_message(raw, first + place) for place, raw in enumerate(_piece(parts.messages, first))]
        batches.append(batch_of_json(messages, parts.encoding, first))
    # A body may be large and have no messages: it may be all spaces.
    batch = join(batches) if batches else batch_of_json([], parts.encoding)
    return batch, commit_key_of(parts.commit_key)


def _decode_message(raw: msgspec.Raw, row: int) -> MessageIn:
    try:
        return _MESSAGE.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        rule = f"it does not match the schema: {error}"
        raise InvalidInput("body", f"wrong in message {row}", rule) from None


def _piece(rows: list[Any], first: int) -> list[Any]:
    return rows[first : first + PIECE_MESSAGES]


_MESSAGE: Final = msgspec.json.Decoder(MessageIn)


def batch_of_json(messages: Sequence[MessageIn], encoding: Encoding, first_row: int = 0) -> pa.RecordBatch:
    """Messages as a batch, of which the first is that row of its body; columns that no message has are left out."""
    columns: dict[str, pa.Array] = {}
    documents = [row for row, message in enumerate(messages) if isinstance(message.value, dict | list)]
    for field in PUBLISH_SCHEMA:
        values: list[Any] = [getattr(message, field.name) for message in messages]
        is_typed = field.name == "attributes" and documents
        if field.name == "value" or is_typed or any(value is not None for value in values):
            columns[field.name] = _column(field, values, encoding, first_row, documents)
    return pa.record_batch(columns)


def _column(
    field: pa.Field, values: list[Any], encoding: Encoding, first_row: int, documents: Sequence[int]
) -> pa.Array:
    """A field of all messages; the values of `documents` are JSON, and their attributes say so."""
    is_bytes = pa.types.is_binary(field.type) or pa.types.is_map(field.type)
    try:
        if field.name == "value":
            for row in documents:
                values[row] = _document(values[row], first_row + row)
        if is_bytes and encoding == "base64":
            values = [_decoded(value, field.name, row) for row, value in enumerate(values, first_row)]
        if field.name == "attributes":
            for row in documents:
                values[row] = {CONTENT_TYPE_ATTRIBUTE: JSON, **(values[row] or {})}
        if pa.types.is_map(field.type):
            items = [None if value is None else list(value.items()) for value in values]
            return pa.array(items, field.type)
        return pa.array(values, field.type)
    except (OverflowError, pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise InvalidInput(field.name, "in this body", f"it must be of type {field.type}: {error}") from None


def _document(value: Any, row: int) -> bytes:
    """An object or a list as JSON; what is inside of it stays as it was written."""
    encoded = msgspec.json.encode(value)
    try:
        encoded.decode()
    except UnicodeDecodeError as error:
        raise InvalidMessage("value", ascii(encoded)[:100], f"it is not UTF-8: {error}", row) from None
    return encoded


def _decoded(value: Any, field: str, row: int) -> Any:
    if isinstance(value, bytes):
        return value
    try:
        if isinstance(value, dict):
            return {
                name: None if item is None else base64.b64decode(item, validate=True) for name, item in value.items()
            }
        return None if value is None else base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidMessage(field, repr(value)[:100], f"it is not base64: {error}", row) from None


def commit_key_of(given: CommitKeyIn | None) -> CommitKey | None:
    """The commit key of a body."""
    return None if given is None else CommitKey(given.writer, given.number)


def encode_receipts(receipts: Receipts) -> bytes:
    """Receipts as JSON, in the form of `Published`."""
    pieces = [receipts.slice(first, first + PIECE_MESSAGES) for first in range(0, len(receipts), PIECE_MESSAGES)]
    return msgspec.json.encode({"receipts": _joined(_encode_list(_receipts(piece)) for piece in pieces)})


_NOT_WRITTEN: Final = [ReceiptOut(None, None, status) for status in STATUSES]


def _receipts(receipts: Receipts) -> list[ReceiptOut]:
    rows = zip(receipts.partition.tolist(), receipts.offset.tolist(), receipts.outcome.tolist(), strict=True)
    return [
        ReceiptOut(partition, offset, "written") if outcome == WRITTEN else _NOT_WRITTEN[outcome]
        for partition, offset, outcome in rows
    ]


def encode_fetched(batch: pa.RecordBatch, offset: int, encoding: Encoding) -> bytes:
    """A batch read from `offset` on as JSON, in the form of `Messages`."""
    found = {"messages": encode_messages([batch], encoding), "next_offset": offset + int(batch.num_rows)}
    return msgspec.json.encode(found)


def encode_messages(batches: Iterable[pa.RecordBatch], encoding: Encoding) -> msgspec.Raw:
    """Messages as a JSON list, to be put into an answer."""
    pieces = (
        batch.slice(first, PIECE_MESSAGES) for batch in batches for first in range(0, batch.num_rows, PIECE_MESSAGES)
    )
    return _joined(_encode_list(messages_of(piece, 0, encoding).messages) for piece in pieces)


def _encode_list(values: Sequence[Any]) -> bytes:
    """The items of a JSON list without its brackets."""
    return msgspec.json.encode(values)[1:-1]


def _joined(pieces: Iterable[bytes]) -> msgspec.Raw:
    return msgspec.Raw(b"[" + b",".join(pieces) + b"]")


def stream_of(batch: pa.RecordBatch) -> bytes:
    """A batch as an Arrow IPC stream."""
    return stream_of_all(batch.schema, [batch])


def stream_of_all(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Batches of one schema as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

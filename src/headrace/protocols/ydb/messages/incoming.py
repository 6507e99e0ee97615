"""What clients write: a request cut into its messages, and these as rows.

A few bytes of a request may become a hundred in memory once they are decoded, so a large one is cut by its own tags
first: messages are counted before any is decoded, and decoded one by one, and so are the metadata items of a large one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from headrace.core.hashes.columns import Int64s
from headrace.core.limits import ATTRIBUTES_PER_MESSAGE_MAX, BATCH_ROWS_MAX, LOOP_BYTES_MAX, MICROSECONDS, TIME_US_MAX
from headrace.core.lists import binaries, numbers, repeated
from headrace.core.messages import ATTRIBUTES, TIMESTAMP
from headrace.protocols.ydb.names import (
    CODEC_ATTRIBUTE,
    CODECS,
    KEY_ITEM,
    META_ATTRIBUTE,
    RESERVED_ATTRIBUTES,
    TOMBSTONE_ITEM,
)
from headrace.protocols.ydb.statuses import Status, YdbRefusal
from headrace.protocols.ydb.stubs import topic

FromClient = topic.StreamWriteMessage.FromClient
WriteRequest = topic.StreamWriteMessage.WriteRequest
MessageData = WriteRequest.MessageData

# Numbers of fields.
_WRITE_REQUEST: Final = 2
_MESSAGES: Final = 1
# Wire types of protobuf.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MESSAGES_MAX: Final = min(100_000, BATCH_ROWS_MAX)
# The fields of one message beside its metadata items are fewer.
_FIELDS_MAX: Final = ATTRIBUTES_PER_MESSAGE_MAX + 100
_VARINT_BYTES_MAX: Final = 10
_SECONDS_MAX: Final = TIME_US_MAX // MICROSECONDS


@dataclass(frozen=True)
class ClientMessages:
    """A write request: its messages, and their codec."""

    messages: Sequence[Any]
    codec: int
    has_transaction: bool

    @cached_property
    def seqnos(self) -> list[int]:
        """The number of each message."""
        return [each.seq_no for each in self.messages]


def decoded(data: bytes) -> Any:
    """A message of a write session, or ClientMessages for a request to write.

    It may take long for more than LOOP_BYTES_MAX bytes.
    """
    try:
        if len(data) > LOOP_BYTES_MAX:
            return _cut(memoryview(data))
        message = FromClient.FromString(data)
    except DecodeError:
        raise YdbRefusal(Status.BAD_REQUEST, "the message is no StreamWriteMessage") from None
    if message.WhichOneof("client_message") != "write_request":
        return message
    request = message.write_request
    # As a list: a repeated field makes an object of each message whenever it is walked through.
    return ClientMessages(list(request.messages), request.codec, request.HasField("tx"))


def _cut(data: memoryview) -> ClientMessages:
    """A large request, which can be nothing but one to write."""
    fields = list(_fields(data, 2))
    if len(fields) != 1 or fields[0][0] != _WRITE_REQUEST:
        raise YdbRefusal(Status.BAD_REQUEST, f"a message of {len(data)} bytes that is not one write request")
    messages, rest = [], bytearray()
    for number, whole, content in _fields(fields[0][2], _MESSAGES_MAX + 10):
        if number != _MESSAGES:
            rest += whole
            continue
        if len(content) > LOOP_BYTES_MAX:
            for _ in _fields(content, _FIELDS_MAX):
                pass
        messages.append(MessageData.FromString(content))
    if len(rest) > LOOP_BYTES_MAX:
        raise YdbRefusal(Status.BAD_REQUEST, "a write request has fields that are not its own")
    others = WriteRequest.FromString(bytes(rest))
    return ClientMessages(messages, others.codec, others.HasField("tx"))


def _fields(data: memoryview, fields_max: int) -> Iterator[tuple[int, memoryview, memoryview]]:
    """The number, the whole and the content of each field; raises for too many."""
    at, size, count = 0, len(data), 0
    while at < size:
        count += 1
        if count > fields_max:
            raise YdbRefusal(Status.BAD_REQUEST, f"more than {fields_max} elements in one message: send several")
        begin = at
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _BYTES:
            length, at = _varint(data, at)
            start, at = at, at + length
        elif kind == _VARINT:
            start = at
            _, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            start, at = at, at + (8 if kind == _FIXED64 else 4)
        else:
            raise DecodeError("a group")
        if at > size:
            raise DecodeError("the end is missing")
        yield tag >> 3, data[begin:at], data[start:at]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(at, min(at + _VARINT_BYTES_MAX, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise DecodeError("a number has no end")


# Rows

Items = Sequence[tuple[str, bytes]]


def session_attributes(meta: Mapping[str, str]) -> Items:
    """What a session says of all its messages, as attributes."""
    return [(META_ATTRIBUTE + name, text.encode()) for name, text in sorted(meta.items())]


def rows_of(written: ClientMessages, source: tuple[str, str] | None, partition: int, always: Items) -> pa.RecordBatch:
    """The messages as rows of a source, or of none, for one partition; `always` are attributes of each."""
    messages = written.messages
    count = len(messages)
    columns = {"value": binaries([each.data for each in messages])}
    if written.codec not in CODECS:
        always = [*always, (CODEC_ATTRIBUTE, str(written.codec).encode())]
    elif written.codec != 1:
        columns["codec"] = repeated(CODECS[written.codec], count)
    if always or any(each.metadata_items for each in messages):
        items = [_items(each) for each in messages]
        keys = [dict(own).get(KEY_ITEM) for own in items]
        if any(key is not None for key in keys):
            columns["key"] = binaries(keys)
        if any(name == TOMBSTONE_ITEM for own in items for name, _ in own):
            values = [
                None if TOMBSTONE_ITEM in dict(own) else each.data for own, each in zip(items, messages, strict=True)
            ]
            columns["value"] = binaries(values)
        shown = [[(name, value) for name, value in own if name not in (KEY_ITEM, TOMBSTONE_ITEM)] for own in items]
        columns["attributes"] = _attributes([[*always, *own] for own in shown])
    times = _created_us(messages)
    if times.any():
        columns["created_at"] = numbers(pa.int64(), times).view(TIMESTAMP)
    if source is not None:
        columns["producer_id"] = repeated(source[0], count)
        columns["message_group_id"] = repeated(source[1], count)
        columns["seqno"] = numbers(pa.int64(), _column(written.seqnos))
    columns["partition"] = numbers(pa.int32(), np.full(count, partition, np.int32))
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _items(message: Any) -> Items:
    items = [(item.key, item.value) for item in message.metadata_items]
    for name, _ in items:
        if name.startswith(RESERVED_ATTRIBUTES):
            raise YdbRefusal(
                Status.BAD_REQUEST, f"metadata item {name[:100]!r}: names with {RESERVED_ATTRIBUTES} are reserved"
            )
    return items


def _created_us(messages: Sequence[Any]) -> Int64s:
    created = [each.created_at for each in messages]
    seconds = _column([each.seconds for each in created])
    if (np.abs(seconds) > _SECONDS_MAX).any():
        raise YdbRefusal(Status.BAD_REQUEST, f"created_at: it must be at most {_SECONDS_MAX} seconds from 1970")
    return seconds * MICROSECONDS + _column([each.nanos for each in created]) // 1000


def _column(values: Sequence[int]) -> Int64s:
    return np.array(values, np.int64)


def _attributes(rows: Sequence[Items]) -> pa.Array:
    """A column of maps, in which names may repeat."""
    offsets = np.fromiter(chain((0,), accumulate(map(len, rows))), np.int32, len(rows) + 1)
    keys = binaries([name.encode() for row in rows for name, _ in row], pa.string())
    items = binaries([value for row in rows for _, value in row])
    return pa.MapArray.from_arrays(numbers(pa.int32(), offsets), keys, items, type=ATTRIBUTES)

"""Messages as a batch for clients. Blocks as long as encoding takes; pure.

A producer that this protocol numbers is named as it named itself, with its epoch and number; any other with its id and
seqno. Values come as they were before a codec; a null is empty. Keys and texts of events that the format has no room
for are left out.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import pyarrow as pa

from headrace.core.codecs.columns import decode_known
from headrace.core.limits import DECODED_BATCH_BYTES_MAX
from headrace.protocols.cursus.messages.batch import ATTRIBUTE_NAMES
from headrace.protocols.cursus.producer_numbers import named_producer

_TEXT_BYTES_MAX: Final = 0xFFFF
_HEAD: Final = struct.Struct(">2sH")
_REST: Final = struct.Struct(">iB1s?QQi")
_BEGIN: Final = struct.Struct(">QQH")
_KEY: Final = struct.Struct(">H")
_PAYLOAD: Final = struct.Struct(">qI")
_EVENT: Final = struct.Struct(">H")
_VERSIONS: Final = struct.Struct(">IQH")
_NO_EVENT: Final = _EVENT.pack(0) + _VERSIONS.pack(0, 0, 0)

# A batch of messages, and the offset after the last of them.
Encoded = tuple[bytes, int]


def batch_of(topic: str, partition: int, rows: Sequence[bytes] = ()) -> bytes:
    """The frame of some records."""
    name = topic.encode()[:_TEXT_BYTES_MAX]
    rest = _REST.pack(partition, 1, b"1", False, 0, 0, len(rows))
    return b"".join([_HEAD.pack(b"\xba\x7c", len(name)), name, rest, *rows])


def encoded(topic: str, partition: int, batches: Sequence[pa.RecordBatch], bytes_max: int) -> Encoded | None:
    """Messages of one partition as a batch of about so many bytes, and where to read on; None if there are none."""
    rows: list[bytes] = []
    after, left = -1, bytes_max
    for batch in batches:
        decoded = decode_known(
            batch.column("value"), batch.column("codec"), column_bytes_max=min(left, DECODED_BATCH_BYTES_MAX)
        )
        found = records_of(batch.slice(0, decoded.rows), decoded.values)
        # The first message is given however large it is.
        ends = list(accumulate(map(len, found)))
        kept = max(bisect_right(ends, left), int(not rows))
        rows += found[:kept]
        if kept:
            after = batch.column("offset")[kept - 1].as_py() + 1
            left -= ends[kept - 1]
        if kept < batch.num_rows or left <= 0:
            break
    return (batch_of(topic, partition, rows), after) if rows else None


def records_of(batch: pa.RecordBatch, values: pa.Array) -> list[bytes]:
    """Each message as a record."""
    columns = [batch.column(name).to_pylist() for name in ("offset", "key", "producer_id", "message_group_id", "seqno")]
    attributes = batch.column("attributes")
    events = [_NO_EVENT] * batch.num_rows if attributes.null_count == len(attributes) else _events(attributes)
    rows: list[bytes] = []
    for offset, key, producer_id, group, seqno, value, event in zip(*columns, values.to_pylist(), events, strict=True):
        name, epoch = named_producer(producer_id, group)
        key = key if key is not None and len(key) <= _TEXT_BYTES_MAX else b""
        payload = value or b""
        begin = _BEGIN.pack(offset, max(0, seqno or 0), len(name))
        rows.append(
            b"".join([begin, name, _KEY.pack(len(key)), key, _PAYLOAD.pack(epoch, len(payload)), payload, event])
        )
    return rows


def _events(attributes: pa.Array) -> list[bytes]:
    return [_event(dict(pairs)) if pairs else _NO_EVENT for pairs in attributes.to_pylist()]


def _event(attributes: dict[str, bytes | None]) -> bytes:
    kind, schema, version, metadata = (attributes.get(name) or b"" for name in ATTRIBUTE_NAMES)
    kind, metadata = (each if len(each) <= _TEXT_BYTES_MAX else b"" for each in (kind, metadata))
    numbers = _number(schema, 32), _number(version, 64), len(metadata)
    return b"".join([_EVENT.pack(len(kind)), kind, _VERSIONS.pack(*numbers), metadata])


def _number(text: bytes, bits: int) -> int:
    is_number = text.isdigit() and len(text) < 20
    return number if is_number and (number := int(text)) < 1 << bits else 0

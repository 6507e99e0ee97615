"""The binary batch: what producers send, and what is read. All numbers are big-endian.

    u16 BA7C, u16+topic, i32 partition, u8+acks, u8 is_idempotent, u64 first number, u64 last number, i32 records
    record: u64 offset, u64 number, u16+producer, u16+key, i64 epoch, u32+payload,
            u16+event type, u32 schema version, u64 aggregate version, u16+metadata

A length is checked against what is left before anything is taken by it. Pure; large ones take milliseconds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.core.messages import ATTRIBUTES
from headrace.protocols.cursus.errors import CursusRefusal, Quoted

MAGIC: Final = b"\xba\x7c"
# Of a record without texts.
RECORD_BYTES_MIN: Final = 48
# What a record takes beside its bytes while it is decoded.
DECODED_RECORD_BYTES: Final = 400
# What is kept of an event as attributes.
EVENT_TYPE, SCHEMA_VERSION, AGGREGATE_VERSION, METADATA = ATTRIBUTE_NAMES = (
    "event_type", "schema_version", "aggregate_version", "metadata",
)  # fmt: skip

_TOPIC: Final = struct.Struct(">2sH")
_PARTITION: Final = struct.Struct(">iB")
_NUMBERS: Final = struct.Struct(">?QQi")
_BEGIN: Final = struct.Struct(">QQH")
_TEXT: Final = struct.Struct(">H")
_PAYLOAD: Final = struct.Struct(">qI")
_VERSIONS: Final = struct.Struct(">IQH")

Event = tuple[bytes, int, int, bytes]
_NO_EVENT: Final[Event] = (b"", 0, 0, b"")


@dataclass(frozen=True, slots=True)
class CursusBatch:
    """What a batch says of its records; they begin at `start`."""

    topic: str
    partition: int
    acks: str
    is_idempotent: bool
    first: int
    last: int
    count: int
    start: int


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """The records of a batch as columns, and what the first says of its producer.

    is_numbered: whether all have this producer and epoch, and each the number after the one before.
    """

    columns: pa.RecordBatch
    producer: str
    epoch: int
    first: int
    is_numbered: bool


def read_header(data: bytes | bytearray) -> CursusBatch:
    """The header; a number of records that cannot be in so many bytes is refused."""
    try:
        _, size = _TOPIC.unpack_from(data)
        at = _TOPIC.size + size
        topic = _text(data, _TOPIC.size, at)
        partition, size = _PARTITION.unpack_from(data, at)
        at += _PARTITION.size
        acks = _text(data, at, at + size)
        is_idempotent, first, last, count = _NUMBERS.unpack_from(data, at + size)
    except struct.error:
        raise _bad("the header is cut off") from None
    start = at + size + _NUMBERS.size
    if not 0 <= count <= (len(data) - start) // RECORD_BYTES_MIN:
        raise _bad(f"{count} records in {len(data) - start} bytes")
    return CursusBatch(topic, partition, acks, is_idempotent, first, last, count, start)


def read_records(header: CursusBatch, data: bytes | bytearray) -> ReadRecords:
    """The records of a batch that has any."""
    frame = bytes(data)
    keys: list[bytes | None] = []
    payloads: list[bytes] = []
    events: list[Event] = []
    at, is_numbered = header.start, True
    producer, epoch, first = b"", 0, 0
    try:
        for row in range(header.count):
            _, number, size = _BEGIN.unpack_from(frame, at)
            at += _BEGIN.size
            name, at = frame[at : at + size], at + size
            (size,) = _TEXT.unpack_from(frame, at)
            at += 2
            keys.append(frame[at : at + size] or None)
            its_epoch, length = _PAYLOAD.unpack_from(frame, at + size)
            at += size + _PAYLOAD.size
            payloads.append(frame[at : at + length])
            at += length
            (size,) = _TEXT.unpack_from(frame, at)
            kind, at = frame[at + 2 : at + 2 + size], at + 2 + size
            schema, version, size = _VERSIONS.unpack_from(frame, at)
            at += _VERSIONS.size + size
            event = (kind, schema, version, frame[at - size : at])
            events.append(_NO_EVENT if event == _NO_EVENT else event)
            if not row:
                producer, epoch, first = name, its_epoch, number
            is_numbered &= name == producer and its_epoch == epoch and number == first + row
    except struct.error:
        raise _bad("the records are cut off") from None
    if at != len(frame):
        raise _bad("the records are cut off" if at > len(frame) else f"{len(frame) - at} bytes after the last record")
    return ReadRecords(_columns(keys, payloads, events), _text(producer, 0, len(producer)), epoch, first, is_numbered)


def _columns(keys: list[bytes | None], payloads: list[bytes], events: list[Event]) -> pa.RecordBatch:
    names, arrays = ["value"], [pa.array(payloads, pa.binary())]
    if any(key is not None for key in keys):
        names.append("key")
        arrays.append(pa.array(keys, pa.binary()))
    if any(event is not _NO_EVENT for event in events):
        names.append("attributes")
        arrays.append(pa.array([attributes_of(event) for event in events], ATTRIBUTES))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def attributes_of(event: Event) -> list[tuple[str, bytes]] | None:
    """What is kept of an event beside its payload and key."""
    values = [each if isinstance(each, bytes) else str(each).encode() if each else b"" for each in event]
    return [(name, value) for name, value in zip(ATTRIBUTE_NAMES, values, strict=True) if value] or None


def _text(data: bytes | bytearray, start: int, end: int) -> str:
    if end > len(data):
        raise _bad("the header is cut off")
    try:
        return data[start:end].decode()
    except UnicodeDecodeError:
        raise _bad("topic, acks and producer must be UTF-8") from None


def _bad(reason: str) -> CursusRefusal:
    return CursusRefusal("batch_decode_failed", reason=Quoted(reason))

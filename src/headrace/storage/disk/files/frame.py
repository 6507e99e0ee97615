"""A frame: one commit, or one part of a large one, as bytes. docs/format.md has the layout.

    header 64 | directory 16 per partition | keys | padding | Arrow IPC record batch | padding

Frames start at multiples of 64. The checksum covers everything after itself and is seeded with the topic's id and
the frame's position, so that a copy of a frame inside a message, or bytes of another file, never pass for a frame.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from crc32c import crc32c

from headrace.core.errors import UnknownFormat
from headrace.core.messages import PUBLISH_SCHEMA, has_nulls
from headrace.core.publish.sources import Source
from headrace.core.publish.state import Commit, CommitKey, Directory

ALIGNMENT: Final = 64
MAGIC: Final = b"HRfr"
# The version that a reader must support: frames have the lowest that will do. 2: resets sources. 3: has null values, or
# attributes with null values.
VERSION: Final = 3
_RESETS_VERSION: Final = 2
_PLAIN_VERSION: Final = 1
CONTINUES: Final = 1
REMEMBERED: Final = 2
RESETS: Final = 4

# magic, checksum, version, flags, columns, bytes, number, time, round robin, rows, entries, key bytes, body bytes
_HEADER: Final = struct.Struct("<4sIHHIQQqQIIII")
_CHECKED_FROM: Final = 8
_ENTRY: Final = np.dtype([("partition", "<u4"), ("rows", "<u4"), ("first_offset", "<i8")])
_ONE_ENTRY: Final = struct.Struct("<IIq")
_SEED: Final = struct.Struct("<QQ")
_KEYS_ENCODER: Final = msgspec.msgpack.Encoder()
_KEYS_DECODER: Final = msgspec.msgpack.Decoder(list[tuple[str, int]])
_RESETS_DECODER: Final = msgspec.msgpack.Decoder(tuple[list[tuple[str, int]], list[tuple[str, str]]])
# Frames of a log have no partition column, because the directory has it; those of a stage may have one.
# Frames that are decoded together are small: threads would cost more than the decoding.
_ONE_THREAD: Final = pa.ipc.IpcReadOptions(use_threads=False)
_COLUMN_BITS: Final = {name: 1 << bit for bit, name in enumerate(PUBLISH_SCHEMA.names)}


class Header(NamedTuple):
    """The header of a frame."""

    checksum: int
    version: int
    flags: int
    columns: int
    bytes: int
    number: int
    time_us: int
    round_robin: int
    rows: int
    entries: int
    key_bytes: int
    body_bytes: int
    # Where the record batch starts in the frame.
    body: int

    @property
    def continues(self) -> bool:
        """Whether the next frame belongs to the same commit."""
        return bool(self.flags & CONTINUES)

    @property
    def remembered(self) -> bool:
        """Whether the values were added to the payload window; the topic's settings may have changed since."""
        return bool(self.flags & REMEMBERED)


def aligned(length: int) -> int:
    """The next multiple of the alignment."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def encode(commit: Commit, topic_id: int, position: int) -> tuple[Header, list[Any]]:
    """A commit as buffers to be written at a position; the record batch is not copied again."""
    entries, keys = len(commit.directory.partition), _keys_of(commit)
    prefix = _encode_directory(commit.directory) + keys
    body = commit.rows.serialize()
    body_position = aligned(_HEADER.size + len(prefix))
    total = aligned(body_position + body.size)
    columns = _columns_of(tuple(commit.rows.schema.names))
    flags = (CONTINUES if commit.continues else 0) | (REMEMBERED if len(commit.payloads.first) else 0)
    flags |= RESETS if commit.resets else 0
    version = _version_of(commit)
    values = (flags, columns, total, commit.number, commit.time_us, commit.round_robin)
    counts = (commit.rows.num_rows, entries, len(keys), body.size)
    prefix += bytes(body_position - _HEADER.size - len(prefix))
    padding = bytes(total - body_position - body.size)
    unchecked = _HEADER.pack(MAGIC, 0, version, *values, *counts)
    checksum = crc32c(_SEED.pack(topic_id, position))
    for part in (unchecked[_CHECKED_FROM:] + prefix, body, padding):
        checksum = crc32c(part, checksum)
    head = _HEADER.pack(MAGIC, checksum, version, *values, *counts)
    return Header(checksum, version, *values, *counts, body_position), [head + prefix, body, padding]


def _encode_directory(directory: Directory) -> bytes:
    if len(directory.partition) == 1:
        # Its layout is that of the array.
        return _ONE_ENTRY.pack(directory.partition[0], directory.rows[0], directory.first_offset[0])
    entries = np.empty(len(directory.partition), _ENTRY)
    entries["partition"] = directory.partition
    entries["rows"] = directory.rows
    entries["first_offset"] = directory.first_offset
    return entries.tobytes()


@cache
def _columns_of(names: tuple[str, ...]) -> int:
    """The column mask of rows with these columns."""
    return sum(_COLUMN_BITS[name] for name in names)


def _version_of(commit: Commit) -> int:
    if has_nulls(commit.rows):
        return VERSION
    return _RESETS_VERSION if commit.resets else _PLAIN_VERSION


def _keys_of(commit: Commit) -> bytes:
    """The parts of a commit other than its rows."""
    keys = [(key.writer, key.number) for key in commit.keys]
    if commit.resets:
        return _KEYS_ENCODER.encode((keys, commit.resets))
    return _KEYS_ENCODER.encode(keys) if keys else b""


def read_intact(view: memoryview, position: int, topic_id: int, file: str) -> Header | None:
    """The header at a position, or None if there is no complete frame with a correct checksum."""
    header = _decode_header(view, position)
    if header is None:
        return None
    checked = view[position + _CHECKED_FROM : position + header.bytes]
    if crc32c(checked, crc32c(_SEED.pack(topic_id, position))) != header.checksum:
        return None
    if header.version > VERSION:
        raise UnknownFormat(file, header.version, VERSION)
    return header


def _decode_header(view: memoryview, position: int) -> Header | None:
    if position + _HEADER.size > len(view):
        return None
    magic, *values = _HEADER.unpack_from(view, position)
    *_, entries, key_bytes, _ = values
    values.append(aligned(_HEADER.size + entries * _ENTRY.itemsize + key_bytes))
    header = Header(*values)
    fits = _HEADER.size <= header.bytes <= len(view) - position
    return header if magic == MAGIC and fits and header.bytes % ALIGNMENT == 0 else None


def decode_directory(view: memoryview, position: int, header: Header) -> Directory:
    """The partition directory of a frame."""
    entries = np.frombuffer(view, _ENTRY, header.entries, position + _HEADER.size)
    return Directory(
        entries["partition"].astype(np.int32),
        entries["first_offset"].astype(np.int64),
        entries["rows"].astype(np.int64),
    )


def decode_keys(view: memoryview, position: int, header: Header) -> tuple[CommitKey, ...]:
    """The commit keys of a frame."""
    if not header.key_bytes:
        return ()
    stored = _stored_keys(view, position, header)
    keys = _RESETS_DECODER.decode(stored)[0] if header.flags & RESETS else _KEYS_DECODER.decode(stored)
    return tuple(CommitKey(writer, number) for writer, number in keys)


def decode_resets(view: memoryview, position: int, header: Header) -> tuple[Source, ...]:
    """The sources that a frame resets."""
    if not header.flags & RESETS:
        return ()
    return tuple(_RESETS_DECODER.decode(_stored_keys(view, position, header))[1])


def _stored_keys(view: memoryview, position: int, header: Header) -> memoryview:
    start = position + _HEADER.size + header.entries * _ENTRY.itemsize
    return view[start : start + header.key_bytes]


def decode_rows(body: Any, columns: int) -> pa.RecordBatch:
    """The stored rows of a frame, without a copy."""
    return pa.ipc.read_record_batch(pa.py_buffer(body), schema_of(columns))


def decode_many(bodies: list[memoryview], columns: int) -> pa.RecordBatch:
    """The rows of many small frames with the same columns, decoded together."""
    stream = b"".join([_schema_message(columns), *bodies])
    reader = pa.ipc.open_stream(pa.py_buffer(stream), options=_ONE_THREAD)
    return reader.read_all().combine_chunks().to_batches()[0]


def has_sources(columns: int) -> bool:
    """Whether rows with this column mask name producers."""
    return bool(columns & _COLUMN_BITS["producer_id"])


@cache
def schema_of(columns: int) -> pa.Schema:
    """The schema of a frame with this column mask."""
    return pa.schema([field for field in PUBLISH_SCHEMA if columns & _COLUMN_BITS[field.name]])


@cache
def _schema_message(columns: int) -> bytes:
    return bytes(schema_of(columns).serialize())

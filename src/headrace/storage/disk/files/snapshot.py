"""A snapshot: what planning remembers of a topic beyond its log's tail, as of some commit number.

    header | a msgpack struct | Arrow IPC of the sources | Arrow IPC of the payload window

Recovery takes the newest snapshot that is intact and replays the frames after it. The checksum covers everything
after itself; the two newest snapshots are kept, so that a damaged one costs time but loses nothing.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from crc32c import crc32c

from headrace.core.errors import UnknownFormat
from headrace.core.limits import WINDOW_MESSAGES_MAX
from headrace.core.publish import payload_window as window
from headrace.core.publish import sources
from headrace.core.publish.payload_window import PayloadWindow
from headrace.core.publish.sources import SourceTable
from headrace.core.publish.state import TopicState
from headrace.storage.disk.files.filesystem import FileSystem, write_whole
from headrace.storage.disk.files.segment import file_name, file_names

MAGIC: Final = b"HRst"
# 2: sources have digests.
VERSION: Final = 2
ENDING: Final = "state"
KEPT: Final = 2

# magic, checksum, version, bytes of the struct, of the sources and of the window
_HEADER: Final = struct.Struct("<4sIIIQQ")
_CHECKED_FROM: Final = 8


class _Content(msgspec.Struct, array_like=True):
    next_number: int
    last_time_us: int
    round_robin: int
    writers: list[tuple[str, int]]


_CONTENT: Final = msgspec.msgpack.Decoder(_Content)


def write(files: FileSystem, directory: Path, state: TopicState) -> None:
    """Write a snapshot of the state, durably, and delete older ones."""
    writers = [*state.writers.items(), *state.one_time_writers.items()]
    content = _Content(state.next_number, state.last_time_us, state.round_robin, writers)
    parts = [
        msgspec.msgpack.encode(content),
        bytes(state.sources.snapshot().serialize()),
        bytes(state.window.snapshot().serialize()),
    ]
    body = b"".join(parts)
    unchecked = _HEADER.pack(MAGIC, 0, VERSION, *map(len, parts))
    checksum = crc32c(body, crc32c(unchecked[_CHECKED_FROM:]))
    header = _HEADER.pack(MAGIC, checksum, VERSION, *map(len, parts))
    write_whole(files, directory / file_name(state.next_number, ENDING), [header, body], durable=True)
    remove_older(files, directory, KEPT)


def remove_older(files: FileSystem, directory: Path, kept: int) -> None:
    """Delete all snapshots but the given number of newest ones."""
    for name in names(files, directory)[:-kept]:
        files.remove(directory / name)


def names(files: FileSystem, directory: Path) -> list[str]:
    """The snapshots in a directory, oldest first."""
    return file_names(files.list_directory(directory), ENDING)


def next_number(files: FileSystem, path: Path) -> int | None:
    """The next commit number at the time of a snapshot, or None if it is damaged."""
    restored = _decode(files.map(path), str(path), WINDOW_MESSAGES_MAX)
    return None if restored is None else restored[0].next_number


def restore_newest(files: FileSystem, directory: Path, state: TopicState) -> tuple[TopicState, list[str]]:
    """The state restored from the newest intact snapshot, and the names of damaged ones that were skipped."""
    damaged: list[str] = []
    for name in reversed(names(files, directory)):
        if restored := _decode(files.map(directory / name), str(directory / name), state.window.messages_max):
            content, table, seen = restored
            state.next_number, state.last_time_us = content.next_number, content.last_time_us
            state.round_robin = content.round_robin
            for writer, number in content.writers:
                state.remember(writer, number)
            state.sources, state.window = table, seen
            return state, damaged
        damaged.append(name)
    return state, damaged


def _decode(view: memoryview, file: str, payloads_max: int) -> tuple[_Content, SourceTable, PayloadWindow] | None:
    if len(view) < _HEADER.size:
        return None
    magic, checksum, version, *lengths = _HEADER.unpack_from(view)
    if magic != MAGIC or crc32c(view[_CHECKED_FROM:]) != checksum:
        return None
    if version > VERSION:
        raise UnknownFormat(file, version, VERSION)
    parts: list[Any] = []
    start = _HEADER.size
    for length in lengths:
        parts.append(bytes(view[start : start + length]))
        start += length
    table = _read_sources(parts[1], version)
    seen = pa.ipc.read_record_batch(pa.py_buffer(parts[2]), window.SNAPSHOT_SCHEMA)
    content = _CONTENT.decode(parts[0])
    return content, SourceTable.restore(table), PayloadWindow.restore(seen, payloads_max)


def _read_sources(part: bytes, version: int) -> pa.RecordBatch:
    schema = sources.SNAPSHOT_SCHEMA
    if version >= 2:
        return pa.ipc.read_record_batch(pa.py_buffer(part), schema)
    table = pa.ipc.read_record_batch(pa.py_buffer(part), schema.remove(schema.get_field_index("digest")))
    unknown = pa.array(np.full(table.num_rows, sources.NO_DIGEST, np.int64))
    return table.append_column(schema.field("digest"), unknown)

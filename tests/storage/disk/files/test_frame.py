"""Frames: what is encoded comes back, and nothing else passes for a frame."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import UnknownFormat
from headrace.core.messages import PUBLISH_SCHEMA, STORED_SCHEMA
from headrace.core.publish.payload_window import NO_PAYLOADS
from headrace.core.publish.sources import NO_UPDATES, Source
from headrace.core.publish.state import Commit, CommitKey, Directory
from headrace.storage.disk.files import frame

ATTRIBUTES = st.none() | st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=3)
DAYS = st.integers(-20_000, 20_000).map(lambda days: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=days))
CELLS: dict[str, st.SearchStrategy[Any]] = {
    "value": st.binary(max_size=40),
    "key": st.none() | st.binary(max_size=5),
    "attributes": ATTRIBUTES,
    "codec": st.none() | st.sampled_from(["raw", "zstd"]),
    "created_at": st.none() | DAYS,
    "producer_id": st.none() | st.text(max_size=4),
    "message_group_id": st.none() | st.text(max_size=4),
    "seqno": st.none() | st.integers(0, (1 << 63) - 1),
    "partition": st.none() | st.integers(0, 9_999),
}
RESETS = st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=2).map(tuple)
KEYS = st.lists(st.builds(CommitKey, st.text(max_size=9), st.integers(0, (1 << 63) - 1)), max_size=3).map(tuple)


def commit_of(
    rows: pa.RecordBatch,
    directory: Directory,
    keys: tuple[CommitKey, ...] = (),
    continues: bool = False,
    resets: tuple[Source, ...] = (),
) -> Commit:
    return Commit(7, -5, rows, directory, 99, keys, NO_UPDATES, NO_PAYLOADS, continues, resets)


@st.composite
def batches(draw: st.DrawFn, rows_min: int = 0) -> pa.RecordBatch:
    """A batch with any of the columns, cut out of a larger one."""
    columns = ["value", *draw(st.sets(st.sampled_from([name for name in CELLS if name != "value"])))]
    fields = [field for field in PUBLISH_SCHEMA if field.name in columns]
    count = draw(st.integers(rows_min, 12))
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    total = before + count + after
    arrays = [
        pa.array(draw(st.lists(CELLS[field.name], min_size=total, max_size=total)), field.type) for field in fields
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)).slice(before, count)


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    rows = draw(batches())
    counts = np.array(draw(st.lists(st.integers(1, 5), max_size=4)), np.int64)
    partitions = sorted(draw(st.sets(st.integers(0, 9_999), min_size=len(counts), max_size=len(counts))))
    offsets = draw(st.lists(st.integers(0, 1 << 62), min_size=len(counts), max_size=len(counts)))
    directory = Directory(np.array(partitions, np.int32), np.array(offsets, np.int64), counts)
    return commit_of(rows, directory, draw(KEYS), draw(st.booleans()), draw(RESETS))


def encoded(commit: Commit, topic_id: int = 3, position: int = 0) -> bytes:
    return b"".join(bytes(part) for part in frame.encode(commit, topic_id, position)[1])


def body_of(view: memoryview, position: int, header: frame.Header) -> memoryview:
    return view[position + header.body : position + header.body + header.body_bytes]


@pytest.fixture
def sample() -> bytes:
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"one", b"two"], pa.binary()), pa.array([5, None], pa.int64())],
        schema=pa.schema([STORED_SCHEMA.field("value"), STORED_SCHEMA.field("seqno")]),
    )
    directory = Directory(np.array([0, 4], np.int32), np.array([10, 20], np.int64), np.array([1, 1], np.int64))
    return encoded(commit_of(rows, directory, (CommitKey("writer", 8),)))


@settings(deadline=None)
@given(commit=commits(), topic_id=st.integers(1, 1 << 40), blocks=st.integers(0, 5))
def test_a_commit_comes_back_as_it_was(commit: Commit, topic_id: int, blocks: int) -> None:
    position = blocks * frame.ALIGNMENT
    header, parts = frame.encode(commit, topic_id, position)
    data = bytes(position) + b"".join(bytes(part) for part in parts)
    assert len(data) % frame.ALIGNMENT == 0
    assert header.bytes == len(data) - position
    view = memoryview(data)
    assert frame.read_intact(view, position, topic_id, "file") == header
    assert (header.number, header.time_us, header.round_robin) == (7, -5, 99)
    assert header.continues == commit.continues
    assert header.rows == commit.rows.num_rows
    assert header.body % frame.ALIGNMENT == 0
    directory = frame.decode_directory(view, position, header)
    for name in ("partition", "first_offset", "rows"):
        stored, given_ = getattr(directory, name), getattr(commit.directory, name)
        assert stored.dtype == given_.dtype
        assert stored.tolist() == given_.tolist()
    assert frame.decode_keys(view, position, header) == commit.keys
    assert frame.decode_resets(view, position, header) == commit.resets
    # A program that knows nothing of resets refuses the frame, and reads all others.
    assert header.version == (2 if commit.resets else 1)
    rows = frame.decode_rows(body_of(view, position, header), header.columns)
    rows.validate(full=True)
    assert rows.schema == commit.rows.schema
    assert rows.to_pylist() == commit.rows.to_pylist()
    assert frame.has_sources(header.columns) == ("producer_id" in commit.rows.schema.names)


@settings(deadline=None)
@given(pieces=st.lists(batches(rows_min=1), min_size=1, max_size=4))
def test_frames_decoded_together_are_their_rows_one_after_another(pieces: list[pa.RecordBatch]) -> None:
    nowhere = Directory(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))
    alike = [piece for piece in pieces if piece.schema == pieces[0].schema]
    bodies, columns = [], set()
    for piece in alike:
        header, parts = frame.encode(commit_of(piece, nowhere), 1, 0)
        bodies.append(memoryview(parts[1]))
        columns.add(header.columns)
    (mask,) = columns
    joined = frame.decode_many(bodies, mask)
    joined.validate(full=True)
    assert joined.schema == pieces[0].schema
    assert joined.to_pylist() == [row for piece in alike for row in piece.to_pylist()]


def test_rows_are_not_copied(sample: bytes) -> None:
    view = memoryview(sample)
    header = frame.read_intact(view, 0, 3, "file")
    assert header is not None
    rows = frame.decode_rows(body_of(view, 0, header), header.columns)
    start = np.frombuffer(view, np.uint8).ctypes.data
    assert start <= rows["value"].buffers()[2].address < start + len(sample)


def test_the_layout_is_the_one_of_the_format(sample: bytes) -> None:
    magic, _, version, flags, columns = struct.unpack_from("<4sIHHI", sample)
    assert (magic, version, flags) == (b"HRfr", 1, 0)
    # The value is bit 0 and seqno bit 7, whatever columns come later.
    assert columns == 0b1000_0001
    total, number, time_us, round_robin = struct.unpack_from("<QQqQ", sample, 16)
    assert (total, number, time_us, round_robin) == (len(sample), 7, -5, 99)
    rows, entries, key_bytes, body_bytes = struct.unpack_from("<IIII", sample, 48)
    assert (rows, entries) == (2, 2)
    assert struct.unpack_from("<IIqIIq", sample, 64) == (0, 1, 10, 4, 1, 20)
    body = -(-(64 + 32 + key_bytes) // 64) * 64
    assert len(sample) == -(-(body + body_bytes) // 64) * 64


def test_a_frame_is_one_only_where_it_was_written(sample: bytes) -> None:
    view = memoryview(bytes(64) + sample)
    assert frame.read_intact(memoryview(sample), 0, 3, "file") is not None
    assert frame.read_intact(view, 64, 3, "file") is None
    assert frame.read_intact(memoryview(sample), 0, 4, "file") is None


@pytest.mark.parametrize("place", [0, 5, 8, 12, 16, 24, 32, 40, 48, 70, 100, 200, -1])
def test_a_changed_byte_is_noticed(sample: bytes, place: int) -> None:
    data = bytearray(sample)
    data[place] ^= 0x10
    assert frame.read_intact(memoryview(data), 0, 3, "file") is None


def test_less_than_a_frame_is_none(sample: bytes) -> None:
    for length in (0, 1, 63, 64, len(sample) - 64, len(sample) - 1):
        assert frame.read_intact(memoryview(sample)[:length], 0, 3, "file") is None
    assert frame.read_intact(memoryview(sample), len(sample), 3, "file") is None


@pytest.mark.parametrize("length", [0, 63, 65, 1 << 40])
def test_a_length_that_cannot_be_is_none(sample: bytes, length: int) -> None:
    data = bytearray(sample)
    struct.pack_into("<Q", data, 16, length)
    assert frame.read_intact(memoryview(data), 0, 3, "file") is None


def test_a_frame_of_a_newer_version_is_refused_by_name(sample: bytes) -> None:
    data = bytearray(sample)
    struct.pack_into("<H", data, 8, frame.VERSION + 1)
    assert frame.read_intact(memoryview(data), 0, 3, "file") is None
    struct.pack_into("<I", data, 4, crc32c(bytes(data[8:]), crc32c(struct.pack("<QQ", 3, 0))))
    with pytest.raises(UnknownFormat) as caught:
        frame.read_intact(memoryview(data), 0, 3, "some.log")
    assert (caught.value.file, caught.value.version, caught.value.known) == (
        "some.log",
        frame.VERSION + 1,
        frame.VERSION,
    )

"""IPC streams that lie: what a hostile sender would write, made from honest ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.messages import ATTRIBUTES, TIMESTAMP


def stream_of(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    """Batches of one schema as an IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def values(rows: int, size: int = 4) -> pa.Array:
    return pa.array([b"v" * size] * rows, pa.binary())


def short_bitmap(rows: int) -> bytes:
    """Two batches whose `created_at` has a bitmap of one byte for all rows: the rest is whatever lies behind it."""
    times = pa.array([None if row % 2 else 0 for row in range(rows)], TIMESTAMP)
    batch = pa.RecordBatch.from_arrays([values(rows), times], names=["value", "created_at"])
    bitmap = struct.pack("<q", (rows + 7) // 8)
    stream = stream_of(batch, batch)
    assert stream.count(bitmap) == 2
    return stream.replace(bitmap, struct.pack("<q", 1))


def false_rows(rows: int, claimed: int, size: int = 4) -> bytes:
    """A batch that claims to have more rows than its offsets are for."""
    stream = stream_of(pa.record_batch({"value": values(rows, size)}))
    return stream.replace(struct.pack("<q", rows), struct.pack("<q", claimed))


def bomb(size: int, compression: str = "zstd", copies: int = 1) -> bytes:
    """Values of zeros that take next to nothing as long as they are compressed."""
    zeros = pa.py_buffer(np.zeros(size, np.uint8))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, size], np.int32)), zeros])
    return stream_of(*[pa.RecordBatch.from_arrays([value], names=["value"])] * copies, compression=compression)


def full_batch(rows: int = 20) -> pa.RecordBatch:
    """Every column that a batch of messages may have, some of them as dictionaries and views."""
    texts = [None if row % 5 == 0 else f"producer-{row % 3}" for row in range(rows)]
    attributes = [[("name", b"%d" % row), ("other", b"")] if row % 2 else None for row in range(rows)]
    columns: dict[str, Any] = {
        "value": [b"%d" % row * (row % 7) for row in range(rows)],
        "key": pa.array([b"key-%d" % row if row % 2 else None for row in range(rows)], pa.binary_view()),
        "attributes": pa.array(attributes, ATTRIBUTES),
        "codec": pa.array(["raw"] * rows).dictionary_encode(),
        "created_at": pa.array([row * 1000 for row in range(rows)], TIMESTAMP),
        "producer_id": pa.array(texts),
        "message_group_id": pa.array([text and "group" for text in texts], pa.large_string()),
        "seqno": pa.array([text and row for row, text in enumerate(texts)], pa.int64()),
        "partition": pa.array([row % 4 for row in range(rows)], pa.int32()),
    }
    return pa.record_batch(columns)


def dictionaries(rows: int = 20) -> bytes:
    """A stream that replaces its dictionaries, and adds to them."""
    sink = pa.BufferOutputStream()
    batches = [
        pa.record_batch({"value": values(rows), "codec": pa.array(codecs * (rows // len(codecs))).dictionary_encode()})
        for codecs in (["raw", "gzip"], ["raw", "gzip", "zstd", "raw"], ["lzop", "raw"])
    ]
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def seeds() -> Sequence[bytes]:
    """Honest streams of many kinds, for others to spoil."""
    batch = full_batch()
    return [
        stream_of(batch),
        stream_of(batch, batch.slice(3, 5), batch),
        stream_of(batch, compression="zstd"),
        stream_of(batch, batch, compression="lz4"),
        dictionaries(),
        stream_of(pa.record_batch({"value": values(1)})),
        stream_of(pa.record_batch({"value": values(2), "attributes": pa.nulls(2, ATTRIBUTES)})),
        short_bitmap(100),
        false_rows(7, 70),
    ]

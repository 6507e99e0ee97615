"""Streams of pyarrow's codecs: pieces, and what is left of those that do not decompress."""

from __future__ import annotations

import random
import tracemalloc

import pyarrow as pa
import pytest

from headrace.core.codecs.streams import decompressed

CODECS = ["gzip", "lz4", "zstd"]
PLAIN = random.Random(1).randbytes(200_000)


def compressed(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(PLAIN)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("codec", CODECS)
def test_pieces_are_bounded_and_whole(codec: str) -> None:
    pieces = list(decompressed(codec, memoryview(compressed(codec))))
    assert b"".join(pieces) == PLAIN
    assert len(pieces) > 1 and max(map(len, pieces)) <= 1 << 16


@pytest.mark.parametrize("codec", CODECS)
def test_what_does_not_decompress_leaves_no_memory_behind(codec: str) -> None:
    cut = compressed(codec)[:1000]

    def refuse(times: int) -> None:
        for _ in range(times):
            with pytest.raises(OSError):
                list(decompressed(codec, cut))

    tracemalloc.start()
    try:
        refuse(5)
        before, _ = tracemalloc.get_traced_memory()
        refuse(100)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A piece each would be 6.5 MB.
    assert after - before < 1_000_000

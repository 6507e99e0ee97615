"""zstd values against pyarrow's streams and frames."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core import zstd

# XXH64 with seed 0, as the reference library gives it.
HASHES = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"abc": 0x44BC2CF5AD770999,
    bytes(range(4)): 0xFFCED8604453CC1E,
    bytes(range(8)): 0x884A173614B81B8D,
    bytes(range(31)): 0xC346D2B59B4D8EE1,
    bytes(range(32)): 0xCBF59C5116FF32B4,
    bytes(range(33)): 0x0C535D1ACAFB8EAD,
    bytes(range(63)): 0xE26AA9E2A95F8E4F,
    bytes(range(64)): 0xF7C67301DB6713F0,
    bytes(range(100)): 0x6AC1E58032166597,
}


def plain(value: bytes) -> bytes:
    return b"".join(zstd.decompress(value))


def streamed(*writes: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for written in writes:
            stream.write(written)
            stream.flush()
    return bytes(sink.getvalue())


@pytest.mark.parametrize("data", HASHES, ids=len)
def test_xxh64_is_that_of_the_reference(data: bytes) -> None:
    assert zstd.xxh64(data) == HASHES[data]


@settings(deadline=None)
@given(st.binary(max_size=1000))
def test_pyarrow_reads_what_is_written(value: bytes) -> None:
    frame = zstd.compress(value)
    assert pa.Codec("zstd").decompress(frame, len(value), asbytes=True) == value
    assert pa.CompressedInputStream(pa.py_buffer(frame), "zstd").read() == value


@settings(deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=5))
def test_streamed_frames_without_a_size_are_read(writes: list[bytes]) -> None:
    assert plain(streamed(*writes)) == b"".join(writes)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=100), min_size=1, max_size=5), st.booleans())
def test_several_frames_are_read(frames: list[bytes], stream: bool) -> None:
    compress = streamed if stream else zstd.compress
    assert plain(b"".join(compress(frame) for frame in frames)) == b"".join(frames)


def test_a_long_value_is_read_in_pieces() -> None:
    value = bytes(range(256)) * 4096
    pieces = list(zstd.decompress(streamed(value)))
    assert b"".join(pieces) == value
    assert max(map(len, pieces)) <= 1 << 16


def test_a_wrong_checksum_is_refused() -> None:
    frame = zstd.compress(b"checked")
    with pytest.raises(ValueError, match=r"does not decompress.*checksum"):
        plain(frame[:-1] + bytes([frame[-1] ^ 1]))


def test_a_cut_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="Truncated"):
        plain(zstd.compress(b"first") + zstd.compress(b"second")[:-1])

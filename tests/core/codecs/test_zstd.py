"""zstd values against pyarrow's streams and frames."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.codecs import zstd

# "checked" as the zstd tool writes it: with a checksum after the data.
WITH_CHECKSUM = bytes.fromhex("28b52ffd0458390000636865636b6564143e3083")


def plain(value: bytes) -> bytes:
    return b"".join(zstd.decompress(value))


def streamed(*writes: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for written in writes:
            stream.write(written)
            stream.flush()
    return bytes(sink.getvalue())


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
    assert plain(WITH_CHECKSUM) == b"checked"
    with pytest.raises(ValueError, match=r"does not decompress.*checksum"):
        plain(WITH_CHECKSUM[:-1] + bytes([WITH_CHECKSUM[-1] ^ 1]))


def test_a_cut_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="Truncated"):
        plain(zstd.compress(b"first") + zstd.compress(b"second")[:-1])

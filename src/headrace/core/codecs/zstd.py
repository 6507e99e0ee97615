"""The Zstandard format for one value: what any zstd tool reads and writes, several frames included.

pyarrow does the compression; its frames carry their size and no checksum. Frames with a checksum, written by other
tools, are verified.

`decompress` gives the plain bytes piece by piece, each of a bounded size, so that the caller can stop a bomb early.
It raises ValueError with the rule that the value breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

_CODEC: Final = pa.Codec("zstd")
_PIECE_BYTES: Final = 1 << 16


def compress(value: bytes) -> bytes:
    """The value as one frame, with its size in the header."""
    frame: bytes = _CODEC.compress(value, asbytes=True)
    return frame


def decompress(value: bytes) -> Iterator[bytes]:
    """The plain bytes of all frames, one after another."""
    stream = pa.CompressedInputStream(pa.py_buffer(value), "zstd")
    while piece := _read(stream):
        yield piece


def _read(stream: pa.CompressedInputStream) -> bytes:
    try:
        piece: bytes = stream.read(_PIECE_BYTES)
    except OSError as error:
        raise ValueError(f"it does not decompress: {error}") from None
    return piece

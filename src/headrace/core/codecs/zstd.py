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

from headrace.core.codecs.streams import decompressed

_CODEC: Final = pa.Codec("zstd")


def compress(value: bytes) -> bytes:
    """The value as one frame, with its size in the header."""
    frame: bytes = _CODEC.compress(value, asbytes=True)
    return frame


def decompress(value: bytes) -> Iterator[bytes]:
    """The plain bytes of all frames, one after another."""
    try:
        yield from decompressed("zstd", value)
    except OSError as error:
        raise ValueError(f"it does not decompress: {error}") from None

"""Compressed streams that pyarrow knows, piece by piece, so that the caller can stop a bomb early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

_PIECE_BYTES: Final = 1 << 16


def decompressed(codec: str, data: bytes | memoryview) -> Iterator[bytes]:
    """The plain bytes, in pieces of a bounded size; raises OSError if the data are not of this codec."""
    piece = pa.allocate_buffer(_PIECE_BYTES)
    with pa.CompressedInputStream(pa.py_buffer(data), codec) as stream:
        # Not `read`: when it fails, pyarrow never frees what it allocated for the answer.
        while count := stream.readinto(piece):
            yield piece[:count].to_pybytes()

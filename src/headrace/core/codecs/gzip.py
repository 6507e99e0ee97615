"""The gzip format for one value: what any gzip tool reads and writes, several members included.

`decompress` gives the plain bytes piece by piece, each of a bounded size, so that the caller can stop a bomb early.
It raises ValueError with the rule that the value breaks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

# zlib's number for a deflate stream inside a gzip header and trailer.
_GZIP_WINDOW_BITS: Final = 31
# Deflate grows by 1032 at most, so one chunk gives at most 4 MiB.
_CHUNK_BYTES: Final = 4096


def compress(value: bytes) -> bytes:
    """The value as one gzip member, without a name or a time: equal values give equal bytes."""
    return zlib.compress(value, wbits=_GZIP_WINDOW_BITS)


def decompress(value: bytes) -> Iterator[bytes]:
    """The plain bytes of all members, one after another."""
    member, began, position = zlib.decompressobj(_GZIP_WINDOW_BITS), 0, 0
    while position < len(value):
        if member.eof:
            member, began = zlib.decompressobj(_GZIP_WINDOW_BITS), position
        chunk = value[position : position + _CHUNK_BYTES]
        try:
            piece = member.decompress(chunk)
        except zlib.error as error:
            raise ValueError(f"what begins at byte {began} does not decompress: {error}") from None
        position += len(chunk) - len(member.unused_data)
        yield piece
    if not member.eof:
        raise ValueError("it is cut short")

"""The codecs of record batches, with a bound on what comes out: gzip, snappy, lz4 and zstd.

Snappy comes in two forms: one raw block, which says at its head how large it will be, and the framing of the Java
client (xerial), blocks with their lengths. The others are streams that are read up to the limit and no further.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from headrace.core.codecs.streams import decompressed
from headrace.protocols.kafka.records.header import CorruptRecords, TooManyBytes, UnsupportedCodec

_STREAMS: Final = {1: "gzip", 3: "lz4", 4: "zstd"}
_SNAPPY: Final = 2
_XERIAL: Final = b"\x82SNAPPY\x00"
# The magic, and two numbers of four bytes for its versions.
_XERIAL_HEAD_BYTES: Final = 16
# No block of snappy grows more than this: a copy of 64 bytes takes three.
_SNAPPY_RATIO_MAX: Final = 32


def decompress(codec: int, data: memoryview, bytes_max: int) -> memoryview:
    """The records, at most `bytes_max` of them; without a codec as they are."""
    if codec == 0:
        return data
    if codec == _SNAPPY:
        return memoryview(_snappy(data, bytes_max))
    if codec not in _STREAMS:
        raise UnsupportedCodec(f"codec {codec}: known ones are none, gzip, snappy, lz4 and zstd")
    name, size = _STREAMS[codec], 0
    pieces: list[bytes] = []
    try:
        for piece in decompressed(name, data):
            pieces.append(piece)
            size += len(piece)
            _check_size(size, bytes_max)
    except (OSError, pa.ArrowException) as error:
        raise CorruptRecords(f"the records are not {name}: {str(error)[:200]}") from None
    return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def _check_size(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise TooManyBytes(f"the records decompress to more than {bytes_max} bytes")


def _snappy(data: memoryview, bytes_max: int) -> bytes:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(data, bytes_max)
    blocks, position, left = [], _XERIAL_HEAD_BYTES, bytes_max
    while position < len(data):
        if position + 4 > len(data):
            raise CorruptRecords("the snappy framing ends inside a length")
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 < size <= len(data) - position:
            raise CorruptRecords(f"a snappy block says it has {size} bytes and {len(data) - position} are left")
        blocks.append(_snappy_block(data[position : position + size], left))
        left -= len(blocks[-1])
        position += size
    return b"".join(blocks)


def _snappy_block(data: memoryview, bytes_max: int) -> bytes:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    _check_size(size, bytes_max)
    if size > _SNAPPY_RATIO_MAX * len(data):
        raise CorruptRecords(f"a snappy block of {len(data)} bytes says it becomes {size}")
    try:
        block: bytes = pa.Codec("snappy").decompress(pa.py_buffer(data), size, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise CorruptRecords(f"the records are not snappy: {str(error)[:200]}") from None
    return block

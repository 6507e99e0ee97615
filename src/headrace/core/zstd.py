"""The Zstandard format for one value: what any zstd tool reads and writes, several frames included.

pyarrow does the compression. Its frames have no checksum, and without one a flipped bit may go unnoticed, so the
checksum the format provides for (the low half of XXH64, verified by every reader) is added here.

`decompress` gives the plain bytes piece by piece, each of a bounded size, so that the caller can stop a bomb early.
It raises ValueError with the rule that the value breaks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

_CODEC: Final = pa.Codec("zstd")
_PIECE_BYTES: Final = 1 << 16

# The byte after the magic number describes the frame; this bit of it announces a checksum at the end.
_DESCRIPTOR: Final = 4
_HAS_CHECKSUM: Final = 0x04


def compress(value: bytes) -> bytes:
    """The value as one frame, with its size in the header and a checksum at the end."""
    frame = bytearray(_CODEC.compress(value, asbytes=True))
    frame[_DESCRIPTOR] |= _HAS_CHECKSUM
    frame += (xxh64(value) & 0xFFFFFFFF).to_bytes(4, "little")
    return bytes(frame)


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


_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_MASK: Final = (1 << 64) - 1

# Four lanes side by side in one integer, each with as many bits to spare as a product needs.
_LANES: Final = 1 | 1 << 128 | 1 << 256 | 1 << 384
_LANES_MASK: Final = _LANES * _MASK
_LANES_LOW_31: Final = _LANES * ((1 << 31) - 1)
_LANES_HIGH_33: Final = _LANES_MASK ^ _LANES_LOW_31
_LANES_START: Final = ((_P1 + _P2) & _MASK) | _P2 << 128 | (-_P1 & _MASK) << 384


def xxh64(data: bytes) -> int:
    """The XXH64 hash with seed 0."""
    striped = len(data) & ~31
    state = _stripes(data[:striped]) if striped else _P5
    return _avalanche(_tail((state + len(data)) & _MASK, data[striped:]))


def _stripes(data: bytes) -> int:
    """The state after whole stripes of 32 bytes, eight for each lane."""
    lanes = _LANES_START
    for a, b, c, d in struct.iter_unpack("<4Q", data):
        lanes = (lanes + (a | b << 128 | c << 256 | d << 384) * _P2) & _LANES_MASK
        lanes = ((lanes << 31 & _LANES_HIGH_33) | (lanes >> 33 & _LANES_LOW_31)) * _P1 & _LANES_MASK
    each = [lanes >> shift & _MASK for shift in (0, 128, 256, 384)]
    state = sum(_rotate(lane, bits) for lane, bits in zip(each, (1, 7, 12, 18), strict=True)) & _MASK
    for lane in each:
        state = ((state ^ _mix(lane)) * _P1 + _P4) & _MASK
    return state


def _tail(state: int, data: bytes) -> int:
    """The state after the last bytes, fewer than 32: by eight, then by four, then singly."""
    whole = len(data) & ~7
    for (word,) in struct.iter_unpack("<Q", data[:whole]):
        state = (_rotate(state ^ _mix(word), 27) * _P1 + _P4) & _MASK
    if len(data) & 4:
        half = int.from_bytes(data[whole : whole + 4], "little")
        state = (_rotate(state ^ (half * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
    for byte in data[len(data) & ~3 :]:
        state = _rotate(state ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    return state


def _avalanche(state: int) -> int:
    state = (state ^ state >> 33) * _P2 & _MASK
    state = (state ^ state >> 29) * _P3 & _MASK
    return state ^ state >> 32


def _mix(word: int) -> int:
    return _rotate(word * _P2 & _MASK, 31) * _P1 & _MASK


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _MASK

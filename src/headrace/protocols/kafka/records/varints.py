"""Variable-length integers of whole columns: zigzag, seven bits a byte, least significant first.

Decoding reads one varint at each of many positions. Numbers of one or two bytes, which most are, are looked up in
tables; if any is longer, all of them advance together, byte by byte, and those that have ended drop out. Positions that
were checked against the end of the data may still lead beyond it by the bytes of a varint, so callers pad the data with
`PADDING` zeros and check the positions that come back.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

# A 64-bit number takes ten bytes at most.
BYTES_MAX: Final = 10
PADDING: Final = BYTES_MAX + 1

_LOW: Final = np.int64(0x7F)
# The smallest zigzag number that needs one byte more.
_BOUNDS: Final = np.array([1 << 7 * count for count in range(1, BYTES_MAX)], np.uint64)


class BadVarint(ValueError):
    """A number that does not end within ten bytes."""


def read_varints(data: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """The number at each position, and the position after it."""
    first = data[positions]
    if not len(first) or first.max() < 0x80:
        return _ONE_BYTE[first], positions + 1
    both = first.astype(np.uint16)
    both |= data[positions + 1].astype(np.uint16) << np.uint16(8)
    size = _TWO_BYTES_SIZE[both]
    if size.all():
        return _TWO_BYTES[both], positions + size
    return _read_long_varints(data, positions)


def _read_long_varints(data: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """The same of numbers of any length."""
    first = data[positions]
    zigzag: Int64s = first & _LOW
    after = positions + 1
    going = np.flatnonzero(first & 0x80)
    shift = 7
    while len(going):
        if shift >= 7 * BYTES_MAX:
            raise BadVarint("a number is longer than ten bytes")
        part = data[after[going]]
        zigzag[going] |= (part & _LOW) << np.int64(shift)
        after[going] += 1
        going = going[part >= 0x80]
        shift += 7
    return _signed(zigzag), after


def _signed(zigzag: Int64s) -> Int64s:
    # Shifted as unsigned: the top bit belongs to the number.
    numbers: Int64s = (zigzag.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(zigzag & 1)
    return numbers


# The number that begins with each one byte; and by two bytes, the first of them the lower: the number that begins with
# them, and how many of them it takes, 0 if it is longer.
_ONE_BYTE: Final = _signed(np.arange(0x80))
_FIRST, _SECOND = np.arange(1 << 16) & 0xFF, np.arange(1 << 16) >> 8
_TWO_BYTES: Final = _signed(np.where(_FIRST < 0x80, _FIRST, _FIRST & _LOW | _SECOND << 7))
_TWO_BYTES_SIZE: Final = np.where(_FIRST < 0x80, 1, np.where(_SECOND < 0x80, 2, 0))


def zigzag_of(numbers: Int64s) -> npt.NDArray[np.uint64]:
    """Signed numbers as unsigned ones, small ones first."""
    folded: npt.NDArray[np.uint64] = ((numbers << np.int64(1)) ^ (numbers >> np.int64(63))).view(np.uint64)
    return folded


def lengths_of(zigzag: npt.NDArray[np.uint64]) -> Int64s:
    """How many bytes each number takes."""
    if len(zigzag) and int(zigzag.max()) < 1 << 7:
        return np.ones(len(zigzag), np.int64)
    lengths: Int64s = np.searchsorted(_BOUNDS, zigzag, side="right") + 1
    return lengths


def write_varints(data: Bytes, positions: Int64s, zigzag: npt.NDArray[np.uint64], lengths: Int64s) -> None:
    """Write each number at its position, where there must be room for `lengths_of` it."""
    longest = int(lengths.max()) if len(lengths) else 0
    for place in range(longest):
        going = slice(None) if place == 0 else np.flatnonzero(lengths > place)
        part = ((zigzag[going] >> np.uint64(7 * place)) & np.uint64(0x7F)).astype(np.uint8)
        part |= (lengths[going] > place + 1).astype(np.uint8) << 7
        data[positions[going] + place] = part

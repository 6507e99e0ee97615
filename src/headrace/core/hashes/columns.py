"""Hashes of whole Arrow columns, without a Python loop over messages or over the bytes of a long value.

`fnv1a64` is FNV-1a with 64 bits, bit for bit as cursus has it: it chooses partitions and names payloads.
`mix64` is a second, independent 64-bit hash: a payload counts as seen before only if both agree.

How FNV-1a is vectorised. While many rows still have bytes left, all of them advance by one byte per step. The few
long rows that remain are finished by a closed form. A step is `h = (h ^ b) * p`. The xor changes only the low eight
bits of `h`, so with `l` the low byte of `h`, `h ^ b = h + d` where `d = (l ^ b) - l`, and a row of n bytes gives

    h_n = h_0 * p**n + sum(d_i * p**(n - i))        modulo 2**64

which is a sum over bytes in any order. What is left is `l`, a sequence of bytes that depends only on itself and on
the data. Bit k of `x * p` is bit k of `x` xor something that depends only on lower bits (p is odd), so each of its
eight bit planes is a running xor once the planes below are known.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

FNV_OFFSET: Final = 14695981039346656037
FNV_PRIME: Final = 1099511628211
_MASK: Final = (1 << 64) - 1

# With fewer rows than this, finishing them one after another is faster than a numpy step per byte.
_ROWS_PER_STEP_MIN: Final = 48
# A remainder of up to this many bytes is processed by a plain loop: numpy's call overhead would cost more.
_PLAIN_BYTES_MAX: Final = 1024
# Up to this many rows of up to this many bytes, padding is cheaper than sorting by length.
_PADDED_ROWS_MAX: Final = 2048
_PADDED_BYTES_MAX: Final = 64
_INVERSE: Final = pow(FNV_PRIME, -1, 1 << 64)
_INVERSE_POWERS: Final = np.array([pow(_INVERSE, n, 1 << 64) for n in range(_PADDED_BYTES_MAX + 1)], dtype=np.uint64)
# Longer data is processed in chunks of this size: they fit a processor's cache, and memory stays bounded.
_CHUNK_BYTES: Final = 1 << 18


def fnv1a64_of(data: bytes, state: int = FNV_OFFSET) -> int:
    """The hash of one value: the definition that the kernels are tested against."""
    for byte in data:
        state = ((state ^ byte) * FNV_PRIME) & _MASK
    return state


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of one key."""
    return fnv1a64_of(key) % partitions


def partition_rows(data: Bytes, starts: Int64s, lengths: Int64s, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of every key that `byte_rows` gave."""
    return (fnv1a64_rows(data, starts, lengths) % np.uint64(partitions)).astype(np.int32)


def fnv1a64(column: pa.Array) -> UInt64s:
    """The hash of every row; a null hashes as empty bytes."""
    return fnv1a64_rows(*byte_rows(column))


def fnv1a64_rows(data: Bytes, starts: Int64s, lengths: Int64s) -> UInt64s:
    """The hash of every row that `byte_rows` gave."""
    hashes = np.full(len(lengths), FNV_OFFSET, dtype=np.uint64)
    if len(lengths) < _ROWS_PER_STEP_MIN:
        _advance_singly(data, starts, lengths, hashes)
        return hashes
    width = int(lengths.max())
    if 0 < width <= _PADDED_BYTES_MAX and len(lengths) <= _PADDED_ROWS_MAX:
        return _padded(data, starts, lengths, width)
    longest_first = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[longest_first], lengths[longest_first]
    done = _advance_together(data, starts, lengths, hashes)
    unfinished = int(np.searchsorted(-lengths, -done))
    _advance_singly(data, starts[:unfinished] + done, lengths[:unfinished] - done, hashes)
    result = np.empty_like(hashes)
    result[longest_first] = hashes
    return result


def _padded(data: Bytes, starts: Int64s, lengths: Int64s, width: int) -> UInt64s:
    """Short rows: all are filled up with zeros, which only multiply, and those multiplications are taken back."""
    places = np.arange(width)[:, None]
    filled = data[np.minimum(starts + places, len(data) - 1)] * (places < lengths)
    hashes = np.full(len(lengths), FNV_OFFSET, dtype=np.uint64)
    prime = np.uint64(FNV_PRIME)
    for column in filled:
        np.bitwise_xor(hashes, column, out=hashes)
        np.multiply(hashes, prime, out=hashes)
    return hashes * _INVERSE_POWERS[width - lengths]


def _advance_together(data: Bytes, starts: Int64s, lengths: Int64s, hashes: UInt64s) -> int:
    """Advance all rows that are long enough, byte by byte; returns the byte at which too few were left."""
    prime = np.uint64(FNV_PRIME)
    ascending = lengths[::-1]
    position = 0
    while True:
        active = len(lengths) - int(np.searchsorted(ascending, position, side="right"))
        if active < _ROWS_PER_STEP_MIN:
            return position
        stop = int(lengths[active - 1])
        advancing, places = hashes[:active], starts[:active] + position
        for _ in range(position, stop):
            np.bitwise_xor(advancing, data[places], out=advancing)
            np.multiply(advancing, prime, out=advancing)
            places += 1
        position = stop


def _advance_singly(data: Bytes, starts: Int64s, lengths: Int64s, hashes: UInt64s) -> None:
    """Finish the first rows of `hashes`, each over the bytes it has left."""
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        if length <= _PLAIN_BYTES_MAX:
            hashes[row] = fnv1a64_of(data[start : start + length].tobytes(), int(hashes[row]))
        else:
            for chunk in range(start, start + length, _CHUNK_BYTES):
                end = min(chunk + _CHUNK_BYTES, start + length)
                hashes[row] = _closed_form(data[chunk:end], hashes[row])


def _closed_form(data: Bytes, state: np.uint64) -> np.uint64:
    powers = np.multiply.accumulate(np.full(len(data), FNV_PRIME, dtype=np.uint64))
    low = _low_bytes(data, int(state) & 0xFF)
    difference = (low ^ data).astype(np.int64) - low
    terms = difference.astype(np.uint64) * powers[::-1]
    total = int(np.add.reduce(terms)) + int(state) * int(powers[-1])
    return np.uint64(total & _MASK)


def _low_bytes(data: Bytes, first: int) -> Bytes:
    """The low byte of the state before each byte of `data`, one bit plane after another."""
    low = np.zeros(len(data), dtype=np.uint8)
    factor = np.uint8(FNV_PRIME & 0xFF)
    for bit in range(8):
        known = np.uint8((1 << bit) - 1)
        carried = ((low ^ data) & known) * factor
        flips = ((carried ^ data) >> bit) & 1
        plane = np.empty(len(data), dtype=np.uint8)
        plane[0] = (first >> bit) & 1
        np.bitwise_xor.accumulate(flips[:-1], out=plane[1:])
        plane[1:] ^= plane[0]
        low |= plane << bit
    return low


def mix64(column: pa.Array) -> UInt64s:
    """A hash unlike FNV: each 8-byte word is mixed with its place, the mixed words are summed and mixed again."""
    data, starts, lengths = byte_rows(column)
    sums = np.zeros(len(lengths), dtype=np.uint64)
    cuts = _cuts(lengths)
    for first, end in pairwise(cuts):
        chunk = data[starts[first] : starts[end - 1] + lengths[end - 1]]
        sums[first:end] = _word_sums(chunk, starts[first:end] - starts[first], lengths[first:end])
    return splitmix64(sums + lengths.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))


def _cuts(lengths: Int64s) -> list[int]:
    """Where to cut rows into chunks of about `_CHUNK_BYTES`; a longer row stays whole."""
    ends = np.cumsum(lengths)
    total = int(lengths.sum())
    if total <= _CHUNK_BYTES:
        return [0, len(lengths)] if total else []
    inner = np.searchsorted(ends, np.arange(_CHUNK_BYTES, total, _CHUNK_BYTES))
    return [0, *np.unique(inner[inner > 0]).tolist(), len(lengths)]


def _word_sums(data: Bytes, starts: Int64s, lengths: Int64s) -> UInt64s:
    words_per_row = (lengths + 7) >> 3
    first_words = np.cumsum(words_per_row) - words_per_row
    total = int(words_per_row.sum())
    sums = np.zeros(len(lengths), dtype=np.uint64)
    if total:
        place = np.arange(total, dtype=np.int64) - np.repeat(first_words, words_per_row)
        left = np.repeat(lengths, words_per_row) - (place << 3)
        words = _words(data, np.repeat(starts, words_per_row) + (place << 3), left)
        mixed = splitmix64(words ^ splitmix64(place.astype(np.uint64)))
        rows = np.flatnonzero(words_per_row)
        sums[rows] = np.add.reduceat(mixed, first_words[rows])
    return sums


def _words(data: Bytes, positions: Int64s, left: Int64s) -> UInt64s:
    """The eight bytes at each position as one number, bytes past the row's end as zero."""
    padded = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    windows = np.lib.stride_tricks.as_strided(padded, shape=(len(data) + 1, 8), strides=(1, 1))
    words: UInt64s = windows[positions].view("<u8")[:, 0]
    unused_bits = (np.clip(8 - left, 0, 7) << 3).astype(np.uint64)
    return words & (np.uint64(_MASK) >> unused_bits)


def splitmix64(values: UInt64s) -> UInt64s:
    """Each number mixed, so that numbers of hashes add up without a pattern."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def filled(column: pa.Array, missing: int) -> npt.NDArray[Any]:
    """The numbers of a column, `missing` for nulls; a column without nulls is not copied."""
    if column.null_count:
        column = pc.fill_null(column, missing)
    return column.to_numpy()  # type: ignore[no-any-return]


def byte_rows(column: pa.Array) -> tuple[Bytes, Int64s, Int64s]:
    """A binary column as its data bytes and each row's start and length in them; nulls have length 0."""
    _, offsets_buffer, data_buffer = column.buffers()
    rows = len(column)
    if rows == 0:
        # The buffers of an empty column may be missing.
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32, count=rows + 1, offset=4 * column.offset).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer, np.uint8, last - first, first) if first < last else np.zeros(0, np.uint8)
    starts = offsets[:-1] - first
    lengths = offsets[1:] - offsets[:-1]
    if column.null_count:
        lengths = np.where(column.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    return data, starts, lengths

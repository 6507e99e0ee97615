"""Murmur2 (32 bits) of whole Arrow columns, as Kafka's clients compute it: it chooses partitions where topics say so.

A row is taken word by word, four bytes each; all rows advance together, longest first, and those that have ended drop
out. A long row would take a step for each of its words, so its words are worked on together instead. A step is

    h = h * m ^ k        modulo 2**32, with m odd and k made of the word alone

Bit b of `h * m` is bit b of `h` xor something that depends only on lower bits of `h`. So each of the 32 bit planes of
all states is a running xor once the planes below are known.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.core.hashes.columns import Bytes, Int64s

UInt32s = npt.NDArray[np.uint32]

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
# Longer rows are worked on by bit planes.
_STEPPED_WORDS_MAX: Final = 64
# And in chunks of this many words: they fit a processor's cache, and memory stays bounded.
_CHUNK_WORDS: Final = 1 << 14
# The bits that Kafka's clients divide by the number of partitions.
POSITIVE: Final = np.uint32(0x7FFFFFFF)

_M: Final = np.uint32(_FACTOR)


def murmur2_of(data: bytes) -> int:
    """The hash of one value: the definition that the kernels are tested against."""
    state = _SEED ^ len(data)
    end = len(data) & ~3
    for place in range(0, end, 4):
        word = int.from_bytes(data[place : place + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        state = state * _FACTOR & _MASK ^ word
    if len(data) > end:
        state = (state ^ int.from_bytes(data[end:], "little")) * _FACTOR & _MASK
    state = (state ^ state >> 13) * _FACTOR & _MASK
    return state ^ state >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of one key, as Kafka's clients choose it."""
    return (murmur2_of(key) & int(POSITIVE)) % partitions


def murmur2_rows(data: Bytes, starts: Int64s, lengths: Int64s) -> UInt32s:
    """The hash of every row that `byte_rows` gave."""
    if not len(lengths):
        return np.zeros(0, np.uint32)
    longest_first = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[longest_first], lengths[longest_first]
    # Four bytes may be read where a row has one.
    words = np.lib.stride_tricks.sliding_window_view(np.concatenate([data, np.zeros(4, np.uint8)]), 4)
    counts = lengths >> 2
    states = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    long = int(np.searchsorted(-counts, -_STEPPED_WORDS_MAX))
    for row in range(long):
        start, count = int(starts[row]), int(counts[row])
        states[row] = _by_planes(data[start : start + 4 * count].view("<u4"), states[row])
    _step(words, starts[long:], counts[long:], states[long:])
    _finish(words, starts + 4 * counts, lengths & 3, states)
    result = np.empty_like(states)
    result[longest_first] = states
    return result


def partitions_of(data: Bytes, starts: Int64s, lengths: Int64s, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of every key that `byte_rows` gave, as Kafka's clients choose it."""
    return ((murmur2_rows(data, starts, lengths) & POSITIVE) % np.uint32(partitions)).astype(np.int32)


def _step(words: npt.NDArray[np.uint8], starts: Int64s, counts: Int64s, states: UInt32s) -> None:
    """Advance all rows over their whole words, all those that have one left at a time."""
    for place in range(int(counts[0]) if len(counts) else 0):
        active = int(np.searchsorted(-counts, -place))
        taken = _mixed(words[starts[:active] + 4 * place].view("<u4")[:, 0])
        states[:active] = states[:active] * _M ^ taken


def _mixed(words: UInt32s) -> UInt32s:
    words = words * _M
    return (words ^ words >> np.uint32(24)) * _M


def _finish(words: npt.NDArray[np.uint8], ends: Int64s, left: Int64s, states: UInt32s) -> None:
    """Take the last one to three bytes of each row, and mix the state."""
    rows = np.flatnonzero(left)
    tail = words[ends[rows]].view("<u4")[:, 0] & ((np.uint32(1) << (8 * left[rows]).astype(np.uint32)) - np.uint32(1))
    states[rows] = (states[rows] ^ tail) * _M
    states[:] = (states ^ states >> np.uint32(13)) * _M
    states ^= states >> np.uint32(15)


def _by_planes(words: UInt32s, state: np.uint32) -> np.uint32:
    """The state after all words of a long row."""
    for first in range(0, len(words), _CHUNK_WORDS):
        state = _chunk(_mixed(words[first : first + _CHUNK_WORDS]), state)
    return state


def _chunk(mixed: UInt32s, state: np.uint32) -> np.uint32:
    # The state before each word, and after the last, its low bits first.
    states = np.zeros(len(mixed) + 1, np.uint32)
    for bit in range(32):
        flips = (states[:-1] * _M ^ mixed) >> np.uint32(bit) & np.uint32(1)
        plane = np.empty(len(states), np.uint32)
        plane[0] = state >> np.uint32(bit) & np.uint32(1)
        plane[1:] = np.bitwise_xor.accumulate(flips) ^ plane[0]
        states |= plane << np.uint32(bit)
    return np.uint32(states[-1])

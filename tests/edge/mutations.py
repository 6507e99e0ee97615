"""Streams spoiled at random: bytes, numbers, lengths, names and ends of honest ones. The same seed gives the same."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

# Numbers that code tends to get wrong: around zero, around the sizes of types, and around limits.
NUMBERS = [0, 1, 2, 7, 8, 63, 64, 65, 255, 4096, 1 << 16, 1 << 20, (1 << 20) + 1, 1 << 31, 1 << 32, 1 << 40, 1 << 62]
NUMBERS += [-1, -2, -8, (1 << 31) - 1, (1 << 63) - 1, -(1 << 63), -(1 << 31)]
NOT_TEXT = [b"\xff", b"\xc3(", b"\x80", b"\xed\xa0\x80", b"\0"]
NAMES = [b"value", b"key", b"attributes", b"codec", b"created_at", b"producer_id", b"seqno", b"partition", b"entries"]


def flip(body: bytearray, random: Random) -> None:
    for _ in range(random.choice([1, 1, 2, 8])):
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)


def overwrite_byte(body: bytearray, random: Random) -> None:
    body[random.randrange(len(body))] = random.choice([0, 1, 2, 4, 8, 16, 127, 128, 254, 255, random.randrange(256)])


def overwrite_number(body: bytearray, random: Random) -> None:
    """Most numbers of an IPC stream are aligned to their size."""
    kind, size = random.choice([("<i", 4), ("<q", 8), ("<q", 8), ("<h", 2)])
    if len(body) < size + 2:
        return
    place = random.randrange((len(body) - size) // 2) * 2
    number = random.choice([*NUMBERS, random.randrange(-100, 5000)])
    bits = 8 * size
    number = (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    body[place : place + size] = struct.pack(kind, number)


def nudge_number(body: bytearray, random: Random) -> None:
    """A small change of a number that is there: a count or length that is off by a little."""
    if len(body) < 6:
        return
    place = random.randrange((len(body) - 4) // 2) * 2
    (number,) = struct.unpack_from("<I", body, place)
    body[place : place + 4] = struct.pack("<I", (number + random.choice([-8, -4, -1, 1, 4, 8, 64, 1000])) % (1 << 32))


def spoil_name(body: bytearray, random: Random) -> None:
    name = random.choice(NAMES)
    place = body.find(name)
    if place >= 0:
        wrong = random.choice([*NOT_TEXT, *NAMES])[: len(name)]
        body[place : place + len(wrong)] = wrong


def cut(body: bytearray, random: Random) -> None:
    del body[random.randrange(len(body)) :]


def cut_out(body: bytearray, random: Random) -> None:
    begin = random.randrange(len(body))
    del body[begin : begin + random.choice([1, 4, 8, 64, random.randrange(1, 1000)])]


def repeat(body: bytearray, random: Random) -> None:
    begin = random.randrange(len(body))
    end = min(len(body), begin + random.choice([8, 64, random.randrange(1, 1000)]))
    body[end:end] = body[begin:end]


MUTATIONS: Sequence[Callable[[bytearray, Random], None]] = [
    flip,
    overwrite_byte,
    overwrite_number,
    overwrite_number,
    overwrite_number,
    nudge_number,
    nudge_number,
    spoil_name,
    cut,
    cut_out,
    repeat,
]


def mutated(seeds: Sequence[bytes], random: Random) -> bytes:
    """One of the streams, spoiled in one or a few ways; sometimes with the end of another."""
    body = bytearray(random.choice(seeds))
    if random.random() < 0.1:
        other = random.choice(seeds)
        body[random.randrange(len(body)) :] = other[random.randrange(len(other)) :]
    for _ in range(random.choice([1, 1, 1, 2, 3, 5])):
        if body:
            random.choice(MUTATIONS)(body, random)
    return bytes(body)

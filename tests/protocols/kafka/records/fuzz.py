"""Spoiled record batches, in a process of its own: `python -m tests.protocols.kafka.records.fuzz SEED INPUTS`.

Each has a right checksum, so that what is behind it is reached. What is not refused must be sound: it is validated, and
published as a server would. Prints how many inputs were tried and accepted; the input that ends the process is printed
before it is tried if HEADRACE_FUZZ_VERBOSE is set.
"""

from __future__ import annotations

import os
import resource
import sys
from random import Random

from headrace.core.messages import accept
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.protocols.kafka.records.decode import decode
from headrace.protocols.kafka.records.header import BadRecords
from tests.protocols.kafka.records.by_hand import resealed
from tests.protocols.kafka.records.test_codec import NOW_MS, Record, built

MEMORY_BYTES = 1 << 30
HEAD = 61


def seeds() -> list[bytes]:
    plain: list[Record] = [(NOW_MS + number, b"key", b"value" * number, []) for number in range(40)]
    headers: list[Record] = [(NOW_MS, None, b"x" * number, [("a", b"1"), ("b", b"")]) for number in range(20)]
    return [built(rows, codec) for rows in (plain, headers) for codec in (0, 0, 0, 1, 2, 3, 4)]


def spoiled(data: bytes, random: Random) -> bytes:
    body = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 5])):
        place = random.randrange(21, len(body))
        match random.randrange(4):
            case 0:
                body[place] ^= 1 << random.randrange(8)
            case 1:
                body[place] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 2:
                del body[place : place + random.randrange(1, 9)]
            case _:
                body[place:place] = random.randbytes(random.randrange(1, 9))
        if len(body) < HEAD:
            return bytes(data)
    return resealed(bytes(body))


def tried(data: bytes) -> bool:
    try:
        batch = decode(memoryview(data), 1 << 20).columns
    except BadRecords:
        return False
    batch.validate(full=True)
    accept(batch, DEFAULT_SETTINGS, 1)
    return True


def main() -> None:
    seed, inputs = int(sys.argv[1]), int(sys.argv[2])
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES, size + MEMORY_BYTES))
    random, start = Random(seed), seeds()
    accepted = 0
    for _ in range(inputs):
        data = spoiled(random.choice(start), random)
        if os.environ.get("HEADRACE_FUZZ_VERBOSE"):
            print(data.hex(), file=sys.stderr, flush=True)
        accepted += tried(data)
    print(inputs, accepted)


if __name__ == "__main__":
    main()

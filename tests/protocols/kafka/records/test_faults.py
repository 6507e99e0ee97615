"""Record batches that lie: each is refused with the right error of Kafka, and none costs memory that it only claims."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.protocols.kafka.records.decode import decode
from headrace.protocols.kafka.records.header import BadRecords
from tests.protocols.kafka.records.by_hand import record, resealed
from tests.protocols.kafka.records.test_codec import NOW_MS, Record, built

ROWS: list[Record] = [(NOW_MS + number, b"key", b"value", [("h", b"x")]) for number in range(5)]


def patched(place: int, part: bytes, data: bytes | None = None) -> bytes:
    whole = built(ROWS) if data is None else data
    return resealed(whole[:place] + part + whole[place + len(part) :])


ATTRIBUTES, LAST_DELTA, BASE_TIME, COUNT = 21, 23, 27, 57
GOOD = b"\x0e\x00\x00\x00\x01\x02x\x00"

FAULTS = {
    "no bytes": (b"", "corrupt_message"),
    "a cut head": (built(ROWS)[:40], "corrupt_message"),
    "cut records": (built(ROWS)[:-3], "invalid_record"),
    "bytes behind": (built(ROWS) + b"\x00", "invalid_record"),
    "two batches": (built(ROWS) * 2, "invalid_record"),
    "a flipped bit": (built(ROWS)[:-1] + bytes([built(ROWS)[-1] ^ 1]), "corrupt_message"),
    "magic 0": (built(ROWS)[:16] + b"\x00" + built(ROWS)[17:], "invalid_record"),
    "magic 1": (built(ROWS)[:16] + b"\x01" + built(ROWS)[17:], "invalid_record"),
    "an unknown codec": (patched(ATTRIBUTES, b"\x00\x07"), "unsupported_compression_type"),
    "a false codec": (patched(ATTRIBUTES, b"\x00\x01"), "corrupt_message"),
    "a transaction": (patched(ATTRIBUTES, b"\x00\x10"), "invalid_record"),
    "a control batch": (patched(ATTRIBUTES, b"\x00\x20"), "invalid_record"),
    "no records": (patched(COUNT, struct.pack(">i", 0)), "invalid_record"),
    "a negative count": (patched(COUNT, struct.pack(">i", -5)), "invalid_record"),
    "too many records": (patched(COUNT, struct.pack(">i", 2_000_000_000)), "invalid_record"),
    "more records than bytes": (
        patched(LAST_DELTA, struct.pack(">i", 999), patched(COUNT, struct.pack(">i", 1000))),
        "invalid_record",
    ),
    "one record fewer": (
        patched(LAST_DELTA, struct.pack(">i", 3), patched(COUNT, struct.pack(">i", 4))),
        "invalid_record",
    ),
    "a false last delta": (patched(LAST_DELTA, struct.pack(">i", 9)), "invalid_record"),
    "a time out of range": (patched(BASE_TIME, struct.pack(">q", 1 << 62)), "invalid_timestamp"),
    "a negative length": (record(b"\x0d" + GOOD[1:]), "invalid_record"),
    "a length beyond the end": (record(b"\x1e" + GOOD[1:]), "invalid_record"),
    "an endless length": (record(b"\xff" * 20), "invalid_record"),
    "an endless number": (record(b"\x28\x00" + b"\xff" * 19), "invalid_record"),
    "a record that is too short": (record(b"\x04\x00\x00" + GOOD[1:], count=1), "invalid_record"),
    "an offset delta of 1": (record(b"\x0e\x00\x00\x02\x01\x02x\x00"), "invalid_record"),
    "a key beyond its record": (record(b"\x0e\x00\x00\x00\x7e\x02x\x00"), "invalid_record"),
    "a key length of -2": (record(b"\x0e\x00\x00\x00\x03\x02x\x00"), "invalid_record"),
    "a value beyond its record": (record(b"\x0e\x00\x00\x00\x01\x7ex\x00"), "invalid_record"),
    "a negative count of headers": (record(b"\x0e\x00\x00\x00\x01\x02x\x01"), "invalid_record"),
    "headers that are not there": (record(b"\x0e\x00\x00\x00\x01\x02x\x04"), "invalid_record"),
    "a million headers": (record(b"\x14\x00\x00\x00\x01\x02x\x80\x89\x7a"), "invalid_record"),
    "a header name that is not UTF-8": (record(b"\x14\x00\x00\x00\x01\x02x\x02\x02\xff\x00"), "invalid_record"),
    "bytes behind the headers": (record(b"\x10\x00\x00\x00\x01\x02x\x00\x00"), "invalid_record"),
}


def test_the_record_written_by_hand_is_good() -> None:
    assert decode(memoryview(record(GOOD)), 1000).columns.column("value").to_pylist() == [b"x"]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_refused(fault: str) -> None:
    data, error = FAULTS[fault]
    before = pa.total_allocated_bytes()
    with pytest.raises(BadRecords) as caught:
        decode(memoryview(data), 1 << 20)
    assert caught.value.error == error
    assert str(caught.value)
    assert pa.total_allocated_bytes() - before < 4 << 20


def snappy_of(size: int) -> bytes:
    """A raw snappy block that says it becomes so many bytes."""
    head = bytearray()
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size])


BOMBS = {
    "gzip": (1, gzip.compress(bytes(100 << 20)), "record_list_too_large"),
    "lz4": (3, pa.Codec("lz4").compress(bytes(100 << 20), asbytes=True), "record_list_too_large"),
    "zstd": (4, pa.Codec("zstd").compress(bytes(100 << 20), asbytes=True), "record_list_too_large"),
    "snappy": (2, pa.Codec("snappy").compress(bytes(100 << 20), asbytes=True), "record_list_too_large"),
    "snappy that lies": (2, snappy_of(1000_000) + bytes(10), "corrupt_message"),
    "xerial": (
        2,
        b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 5) + snappy_of(1 << 30),
        "record_list_too_large",
    ),
    "xerial with a false length": (2, b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 500) + b"x", "corrupt_message"),
    "xerial that is cut": (2, b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00", "corrupt_message"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_decompression_is_bounded(bomb: str) -> None:
    codec, body, error = BOMBS[bomb]
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(BadRecords) as caught:
        decode(memoryview(record(body, attributes=codec)), 1 << 20)
    assert caught.value.error == error
    assert pa.default_memory_pool().max_memory() - before < 32 << 20


def test_xerial_framing_is_decoded() -> None:
    block = pa.Codec("snappy").compress(GOOD, asbytes=True)
    framed = b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", len(block)) + block
    assert decode(memoryview(record(framed, attributes=2)), 1000).columns.num_rows == 1


def test_spoiled_batches_never_end_the_process() -> None:
    command = [sys.executable, "-m", "tests.protocols.kafka.records.fuzz", "7", "3000"]
    ended = subprocess.run(command, cwd=Path(__file__).parents[4], capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr[-4000:]
    tried, accepted = map(int, ended.stdout.split())
    assert 0 < accepted < tried == 3000

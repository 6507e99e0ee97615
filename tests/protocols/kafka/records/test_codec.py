"""Record batches against the codec of aiokafka, both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.messages import READ_SCHEMA, TIMESTAMP, pad
from headrace.protocols.kafka.records.decode import RecordBatch, decode, decode_many
from headrace.protocols.kafka.records.encode import encode, encode_many
from headrace.protocols.kafka.records.header import BadRecords, TooManyBytes
from tests.protocols.kafka.records.by_hand import record as records_by_hand

BYTES_MAX = 1 << 24
NOW_MS = 1_790_000_000_000

Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

records = st.lists(
    st.tuples(
        st.integers(0, NOW_MS * 2),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=80)), max_size=3),
    ),
    min_size=1,
    max_size=90,
)


def built(rows: list[Record], codec: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A record batch as a client makes it."""
    builder = DefaultRecordBatchBuilder(2, codec, False, *producer, 1 << 30)
    for place, (time_ms, key, value, headers) in enumerate(rows):
        builder.append(place, time_ms, key, value, headers)
    return bytes(builder.build())


def decoded(data: bytes) -> RecordBatch:
    batch = decode(memoryview(data), BYTES_MAX)
    batch.columns.validate(full=True)
    return batch


def shown(columns: pa.RecordBatch) -> list[Record]:
    full = pad(columns, pa.schema([READ_SCHEMA.field(name) for name in ("created_at", "key", "value", "attributes")]))
    times = full.column("created_at").cast(pa.int64()).to_pylist()
    rest = zip(*(full.column(name).to_pylist() for name in ("key", "value", "attributes")), strict=True)
    return [(time // 1000, key, value, headers or []) for time, (key, value, headers) in zip(times, rest, strict=True)]


def read_batch(rows: list[Record], first_offset: int) -> pa.RecordBatch:
    """The messages as the broker gives them to readers."""
    times, keys, values, headers = zip(*rows, strict=True)
    columns = {
        "partition": pa.array(np.zeros(len(rows), np.int32)),
        "offset": pa.array(np.arange(first_offset, first_offset + len(rows))),
        "timestamp": pa.array([0] * len(rows), TIMESTAMP),
        "created_at": pa.array([time_ms * 1000 for time_ms in times], TIMESTAMP),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "attributes": pa.array([each or None for each in headers], READ_SCHEMA.field("attributes").type),
    }
    return pad(pa.RecordBatch.from_pydict(columns), READ_SCHEMA)


@settings(max_examples=60, deadline=None)
@given(records)
def test_what_a_client_encodes_is_decoded(rows: list[Record]) -> None:
    assert shown(decoded(built(rows)).columns) == rows


@settings(max_examples=60, deadline=None)
@given(records, st.integers(0, 1 << 50))
def test_what_is_encoded_a_client_decodes(rows: list[Record], first_offset: int) -> None:
    data = encode(read_batch(rows, first_offset))
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    read: list[Any] = list(batch)
    assert [(each.timestamp, each.key, each.value, each.headers) for each in read] == rows
    assert [each.offset for each in read] == list(range(first_offset, first_offset + len(rows)))
    assert shown(decoded(data).columns) == rows


def test_long_and_many_records() -> None:
    rows: list[Record] = [(NOW_MS + number % 7, b"k%d" % number, b"v" * (number % 300), []) for number in range(9000)]
    rows[4000] = (NOW_MS - 10**6, None, b"x" * 3_000_000, [("name", b"y" * 70_000)])
    assert shown(decoded(built(rows)).columns) == rows
    assert shown(decoded(encode(read_batch(rows, 5))).columns) == rows


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches(codec: int) -> None:
    rows: list[Record] = [(NOW_MS, b"key", b"value %d" % number, []) for number in range(2000)]
    assert shown(decoded(built(rows, codec)).columns) == rows


def test_the_producer_of_a_batch_is_told() -> None:
    header = decoded(built([(NOW_MS, None, b"x", [])], producer=(77, 3, 1000))).header
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.count) == (77, 3, 1000, 1)


def test_messages_without_a_time_of_their_own_have_the_brokers() -> None:
    batch = read_batch([(5, None, b"a", []), (6, None, b"b", [])], 0)
    created = pa.array([None, 9_000_000], TIMESTAMP)
    batch = batch.set_column(READ_SCHEMA.get_field_index("created_at"), READ_SCHEMA.field("created_at"), created)
    read: list[Any] = list(DefaultRecordBatch(encode(batch)))
    assert [each.timestamp for each in read] == [0, 9000]


def test_slices_with_nulls_are_encoded() -> None:
    rows: list[Record] = [
        (NOW_MS, b"k" if number % 2 else None, b"%d" % number, [("h", b"%d" % number)] if number % 3 else [])
        for number in range(20)
    ]
    batch = read_batch(rows, 100).slice(7, 9)
    assert shown(decoded(encode(batch)).columns) == rows[7:16]


@settings(max_examples=30, deadline=None)
@given(st.lists(records, min_size=1, max_size=5), st.integers(0, 9))
def test_many_batches_are_decoded_as_each_by_itself(many: list[list[Record]], spoiled: int) -> None:
    batches = [built(rows) for rows in many]
    if spoiled < len(batches):
        batches[spoiled] = batches[spoiled][:-1]
    found = decode_many([memoryview(data) for data in batches], BYTES_MAX)
    for place, (rows, batch) in enumerate(zip(many, found, strict=True)):
        assert isinstance(batch, BadRecords) == (place == spoiled)
        if isinstance(batch, RecordBatch):
            batch.columns.validate(full=True)
            assert shown(batch.columns) == rows


def test_batches_that_are_wrong_inside_leave_the_others_alone() -> None:
    good = built([(NOW_MS, None, b"x", [])] * 3)
    wrong = records_by_hand(b"\x0e\x00\x00\x02\x01\x02x\x00")
    timeless = records_by_hand(b"\x0e\x00\x00\x00\x01\x02x\x00", base_timestamp=-1)
    found = decode_many([memoryview(data) for data in (good, wrong, timeless)], BYTES_MAX)
    assert [isinstance(batch, BadRecords) for batch in found] == [False, True, False]
    joined = decode_many([memoryview(data) for data in (good, timeless)], BYTES_MAX)[1]
    assert isinstance(joined, RecordBatch) and joined.columns.column("created_at").to_pylist() == [None]
    assert len(decode_many([memoryview(good)] * 2, len(good))) == 2


@settings(max_examples=30, deadline=None)
@given(st.lists(records, min_size=2, max_size=5))
def test_partitions_encoded_together_are_as_encoded_alone(partitions: list[list[Record]]) -> None:
    batches = [read_batch(rows, 100 * number) for number, rows in enumerate(partitions)]
    assert encode_many(batches) == [encode(batch) for batch in batches]


def test_batches_that_decompress_to_much_together_are_for_several_calls() -> None:
    batches = [memoryview(built([(NOW_MS, None, b"x" * 1000, [])], codec)) for codec in (1, 0, 1, 1)]
    assert len(decode_many(batches, 5000)) == 4
    # What is not compressed is bounded by its request.
    assert len(decode_many(batches, 2500)) == 3
    assert len(decode_many(batches[2:], 1500)) == 1
    (refused, good, *others) = decode_many(batches, 500)
    assert isinstance(refused, TooManyBytes) and isinstance(good, RecordBatch) and len(others) == 2

"""Requests and responses against kio's own codec, and what nobody may claim."""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import numpy as np
import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from headrace.protocols.kafka.apis.table import APIS
from headrace.protocols.kafka.errors import outcome_of
from headrace.protocols.kafka.messages.reader import BadRequest, FieldReader
from headrace.protocols.kafka.messages.rows import NumberRows
from headrace.protocols.kafka.messages.schema import SchemaField, Struct, request_schema, response_schema
from headrace.protocols.kafka.messages.writer import Writer

LIST_OFFSETS, METADATA = 2, 3
SERVED = [(key, version) for key, api in APIS.items() for version in api.versions]
VALUES: dict[str, Any] = {"string": "täxt", "bytes": b"bytes", "records": b"records", "bool": True, "error_code": 3}


def filled(struct: Struct) -> dict[str, Any]:
    """A value for every field, two in every array."""
    return {field.name: _filled(field) for field in struct.fields}


def _filled(field: SchemaField) -> Any:
    value: Any = filled(field.struct) if field.struct is not None else VALUES.get(field.kind, 7)
    if field.kind == "uuid":
        value = None
    return [value, value] if field.is_array else value


def written(struct: Struct, values: dict[str, Any]) -> bytes:
    writer = Writer()
    writer.struct(struct, values)
    return writer.join()


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_every_served_message_is_the_one_that_kio_has(key: int, version: int) -> None:
    for schema, load in ((request_schema, load_request_schema), (response_schema, load_response_schema)):
        struct = schema(key, version).struct
        data = written(struct, filled(struct))
        entity: Any
        kind: Any = load(key, version)
        entity, size = entity_reader(kind)(data, 0)
        assert size == len(data)
        sink = io.BytesIO()
        entity_writer(kind)(sink, entity)
        assert sink.getvalue() == data
        reader = FieldReader(memoryview(data))
        read = reader.struct(struct)
        assert reader.left == 0
        assert written(struct, _plain(read)) == data


@pytest.mark.parametrize("version", APIS[METADATA].versions)
@pytest.mark.parametrize("count", [0, 1, 300])
def test_rows_are_what_their_structs_are(version: int, count: int) -> None:
    def partition(number: int, leader: int) -> dict[str, Any]:
        replicas = {"replica_nodes": [leader], "isr_nodes": [leader, number], "offline_replicas": []}
        return {"error_code": 0, "partition_index": number, "leader_id": leader, "leader_epoch": -1, **replicas}

    numbers = np.arange(count, dtype=np.int32)
    leaders = np.array([-1, 0, (1 << 31) - 1, -(1 << 31), 255] * count, np.int32)[:count]
    struct = response_schema(METADATA, version).struct
    each: Any = [partition(*pair) for pair in zip(numbers.tolist(), leaders.tolist(), strict=True)]
    rows = NumberRows(partition, number=numbers, leader=leaders)
    one, other = ({"brokers": [], "topics": [{"name": "t", "partitions": parts}]} for parts in (rows, each))
    assert written(struct, one) == written(struct, other)


def test_rows_have_numbers_of_any_length() -> None:
    def partition(number: int, error_code: int, end: int) -> dict[str, Any]:
        return {"partition_index": number, "error_code": error_code, "offset": end, "timestamp": end}

    ends = np.array([-1, 0, 1 << 62, 255], np.int64)
    codes, numbers = np.array([0, 0, 3, 7], np.int16), np.arange(4, dtype=np.int32)
    rows = NumberRows(partition, number=numbers, error_code=codes, end=ends)
    every: Any = [partition(*row) for row in zip(numbers.tolist(), codes.tolist(), ends.tolist(), strict=True)]
    struct = response_schema(LIST_OFFSETS, 9).struct
    one, other = ({"topics": [{"name": "t", "partitions": parts}]} for parts in (rows, every))
    assert written(struct, one) == written(struct, other)
    assert outcome_of(one) == outcome_of(other) == "unknown_topic_or_partition"
    assert outcome_of({"topics": [{"partitions": NumberRows(partition, number=numbers)}]}) == "none"


def _plain(value: Any) -> Any:
    """What was read as what can be written."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if hasattr(value, "_asdict"):
        return value._asdict()
    if hasattr(value, "__dict__"):
        return {name: _plain(each) for name, each in vars(value).items()}
    return value


def test_a_message_that_is_cut_anywhere_is_refused() -> None:
    for key, version in ((3, 9), (0, 9), (11, 5), (19, 2)):
        struct = request_schema(key, version).struct
        data = written(struct, filled(struct))
        for size in range(len(data)):
            with pytest.raises(BadRequest):
                FieldReader(memoryview(data[:size])).struct(struct)


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (9, b"\xff\xff\xff\xff\x0f"),
        (9, b"\xff" * 12),
        (9, b"\x02\xff\xff\xff\xff\x0f"),
        (1, b"\x7f\xff\xff\xff"),
        (1, b"\x80\x00\x00\x00"),
        (1, b"\x00\x00\x00\x01\xff\xff"),
        (1, b"\x00\x00\x00\x01\xff\xfe"),
        (1, b"\x00\x00\x00\x01\x00\x01\xff"),
        (9, b"\x01\x00\x00\x00\xff\x01"),
    ],
)
def test_claims_beyond_the_bytes_are_refused(version: int, data: bytes) -> None:
    with pytest.raises(BadRequest):
        FieldReader(memoryview(data)).struct(request_schema(3, version).struct)


def test_tags_are_read_if_known_and_skipped_if_not() -> None:
    struct = request_schema(1, 12).struct
    data = written(struct, filled(struct) | {"cluster_id": "mine"})
    assert FieldReader(memoryview(data)).struct(struct).cluster_id == "mine"
    plain = written(struct, filled(struct))
    assert plain.endswith(b"\x00")
    unknown = plain[:-1] + b"\x01\x63\x03abc"
    assert FieldReader(memoryview(unknown)).struct(struct).cluster_id is None


def test_large_messages_take_little_more_memory_than_what_is_in_them() -> None:
    count = 20_000
    partitions = [{"partition": number, "fetch_offset": number, "partition_max_bytes": 1} for number in range(count)]
    fields = {"topics": [{"topic": "t", "partitions": partitions}]}
    tracemalloc.start()
    try:
        writer = Writer()
        writer.struct(request_schema(1, 12).struct, fields)
        data = writer.join()
        written_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        read = FieldReader(memoryview(data)).struct(request_schema(1, 12).struct)
        read_bytes = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    rows = read.topics[0].partitions
    assert [each.partition for each in rows] == list(range(count))
    assert {each.partition_max_bytes for each in rows} == {1}
    # As namespaces 500 bytes each, and 400 in parts before they were joined.
    assert read_bytes < 300 * count
    assert written_peak < 150 * count


def test_rows_with_tags_are_read_one_by_one() -> None:
    """An array of numbers is read at once unless an element has a tag."""
    struct = request_schema(1, 17).struct
    data = bytearray(written(struct, {"topics": [{"partitions": [{"partition": 1}, {"partition": 2}]}]}))
    plain = FieldReader(memoryview(bytes(data))).struct(struct)
    row = next(field.struct for field in struct.fields if field.name == "topics")
    assert row is not None
    # The second partition gets an unknown tag: a count of one, the tag, no bytes.
    end = data.index(b"\x00\x00\x00\x02", data.index(b"\x00\x00\x00\x01")) + 4 + 4 + 8 + 4 + 8 + 4
    assert data[end] == 0
    data[end : end + 1] = b"\x01\x63\x00"
    tagged = FieldReader(memoryview(bytes(data))).struct(struct)
    for read in (plain, tagged):
        assert [each.partition for each in read.topics[0].partitions] == [1, 2]

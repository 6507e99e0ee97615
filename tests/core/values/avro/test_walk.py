"""Walking through an Avro value before it is decoded: is it a record, and how many items does it have?"""

from __future__ import annotations

import random
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from headrace.core.values.arrays import items_of
from headrace.core.values.avro.rows import AvroRows
from headrace.core.values.avro.schema import avro_record
from headrace.core.values.avro.walk import RecordWalk, TooManyItems
from tests.core.values.avro.test_schema import fixed
from tests.core.values.test_growth import record

ITEM = record(("on", "boolean"), ("tags", {"type": "map", "values": ["null", "double"]})) | {"name": "item"}
SCHEMA = record(
    ("id", "long"),
    ("name", ["null", "string"]),
    ("hash", fixed(3)),
    ("kind", {"type": "enum", "name": "kind", "symbols": ["A", "B"]}),
    ("f", "float"),
    ("rows", {"type": "array", "items": ITEM}),
    ("grid", {"type": "array", "items": {"type": "array", "items": "int"}}),
)
RECORD = avro_record(SCHEMA)
PLAIN = fastavro.parse_schema(RECORD.plain)
WALK = RecordWalk(RECORD.plain)


def some(rnd: random.Random) -> dict[str, Any]:
    def tags() -> dict[str, Any]:
        return {str(place): rnd.choice([None, 0.5]) for place in range(rnd.randint(0, 4))}

    return {
        "id": rnd.randint(-(1 << 63), (1 << 63) - 1), "name": rnd.choice([None, "x" * rnd.randint(0, 300)]),
        "hash": b"abc", "kind": "B", "f": 1.0,
        "rows": [{"on": True, "tags": tags()} for _ in range(rnd.randint(0, 5))],
        "grid": [[rnd.randint(-9, 1 << 30)] * rnd.randint(0, 3) for _ in range(rnd.randint(0, 3))],
    }  # fmt: skip


def encoded(row: dict[str, Any]) -> bytes:
    target = BytesIO()
    fastavro.schemaless_writer(target, PLAIN, row)
    return target.getvalue()


def test_items_are_those_of_the_decoded_value() -> None:
    rnd = random.Random(5)
    for _ in range(60):
        row = some(rnd)
        value, items = encoded(row), items_of(RECORD.shape, row)
        assert WALK.fields(value, items) == len(SCHEMA["fields"])
        if items:
            with pytest.raises(TooManyItems):
                WALK.fields(value, items - 1)
        for end in range(len(value)):
            # One that ends early may be of before the schema had grown, and has no more items than the whole.
            try:
                WALK.fields(value[:end], items)
            except (IndexError, ValueError) as error:
                assert not isinstance(error, TooManyItems)
        with pytest.raises(ValueError, match="goes on"):
            WALK.fields(value + b"\0", items)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "array", "items": "long"}, b"\xff" * 9 + b"\x01\x01"),
        ({"type": "array", "items": "boolean"}, b"\x80\x80\x80\x80\x80\x80\x01"),
        ({"type": "map", "values": "long"}, b"\x01\x04\0\0\0"),
    ],
)
def test_claims_are_not_believed(kind: Any, value: bytes) -> None:
    with pytest.raises(TooManyItems):
        RecordWalk(avro_record(record(("a", kind))).plain).fields(value, 0)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("long", b"\xff" * 10 + b"\x01"),
        ("string", b"\x01"),
        ("string", b"\x7e"),
        (["null", "long"], b"\x04\x02"),
        (["null", "long"], b"\x01\x02"),
        (["null", "long"], b"\x03"),
        ({"type": "array", "items": ["null", "long"]}, b"\x02\x03\0"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\x01"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\x04"),
        ("boolean", b"\x02"),
        ("long", b"\xff" * 9 + b"\x02"),
    ],
)
def test_values_that_are_no_records(kind: Any, value: bytes) -> None:
    schema = record(("a", kind))
    with pytest.raises((IndexError, ValueError)):
        RecordWalk(avro_record(schema).plain).fields(value, 10)
    # Few values and many, which are decoded in different ways.
    for count in (1, 300):
        columns, errors = AvroRows(schema).parse(pa.array([value] * count, pa.binary()))
        assert columns[0].null_count == count
        assert errors == ["the value is not a record of the schema"] * count


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_the_largest_numbers(number: int) -> None:
    schema = record(("a", "long"))
    target = BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), {"a": number})
    assert RecordWalk(avro_record(schema).plain).fields(target.getvalue(), 0) == 1
    columns, errors = AvroRows(schema).parse(pa.array([target.getvalue()], pa.binary()))
    assert (columns[0].to_pylist(), errors) == ([number], [None])


def test_a_block_with_its_size() -> None:
    count = RecordWalk(avro_record(record(("a", {"type": "array", "items": "long"}))).plain)
    count.fields(b"\x03\x04\x02\x04\0", 2)
    with pytest.raises(TooManyItems):
        count.fields(b"\x03\x04\x02\x04\0", 1)

"""Decoding by columns gives what decoding one by one gives, for any bytes."""

from __future__ import annotations

import random
from datetime import date
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from headrace.core.values.avro import flat, rows
from headrace.core.values.avro.flat import is_flat
from headrace.core.values.avro.rows import AvroRows
from headrace.core.values.avro.schema import avro_record
from headrace.core.values.size import TOO_MANY_ITEMS
from tests.core.values.avro.test_schema import decimal, fixed, logical
from tests.core.values.test_growth import record

KINDS: list[Any] = [
    "int", "long", "float", "double", "string", "boolean", "bytes", fixed(3), fixed(16, logicalType="uuid"),
    decimal(9, scale=2), fixed(20, logicalType="decimal", precision=30), logical("int", "date"),
    logical("int", "time-millis"), logical("long", "timestamp-millis"), logical("long", "local-timestamp-micros"),
]  # fmt: skip


def some_schema(rnd: random.Random, levels: int = 2) -> dict[str, Any]:
    def kind(place: int) -> Any:
        made: Any = rnd.choice(KINDS)
        if isinstance(made, dict) and "name" in made:
            made = made | {"name": f"f{rnd.getrandbits(60)}"}
        if levels and rnd.random() < 0.2:
            made = some_schema(rnd, levels - 1)
        if rnd.random() < 0.1:
            made = {"type": "enum", "name": f"e{rnd.getrandbits(60)}", "symbols": ["A", "B", "C"]}
        made = rnd.choice([made, made, ["null", made], [made, "null"], [made]])
        if levels == 2 and rnd.random() < 0.3:
            made = rnd.choice([{"type": "array", "items": made}, {"type": "map", "values": made}])
            made = rnd.choice([made, ["null", made]])
        return made

    fields = ((f"f{place}", kind(place)) for place in range(rnd.randint(1, 6)))
    return record(*fields) | {"name": f"r{rnd.getrandbits(60)}"}


def some_value(rnd: random.Random, plain: Any) -> Any:
    """A value that is stored by a schema without logical types."""
    if isinstance(plain, list):
        return some_value(rnd, rnd.choice(plain))
    named = plain["type"] if isinstance(plain, dict) else plain
    if named == "record":
        return {field["name"]: some_value(rnd, field["type"]) for field in plain["fields"]}
    if named == "array":
        return [some_value(rnd, plain["items"]) for _ in range(rnd.choice((0, 1, 5, 30)))]
    if named == "map":
        return {str(place): some_value(rnd, plain["values"]) for place in range(rnd.choice((0, 1, 3)))}
    if named == "fixed":
        return bytes(plain["size"] - 2) + rnd.randbytes(2)
    numbers = (
        rnd.randint(-3, 3),
        rnd.randint(0, 86_399_999),
        rnd.randint(-(1 << 31), 1 << 31),
        (1 << 63) - 1,
        -(1 << 63),
    )
    return {
        "null": None, "long": rnd.choice(numbers), "float": rnd.choice((0.5, float("inf"))), "double": rnd.random(),
        "boolean": rnd.random() < 0.5, "string": "é" * rnd.choice((0, 1, 100)), "enum": rnd.choice("ABC"),
        "bytes": rnd.randbytes(rnd.randint(1, 4)),
    }[named]  # fmt: skip


def some_values(rnd: random.Random, plain: dict[str, Any], count: int) -> list[bytes | None]:
    """Whole records, and such as a bit or a part of was changed."""
    schema, values = fastavro.parse_schema(plain), []
    for _ in range(count):
        target = BytesIO()
        fastavro.schemaless_writer(target, schema, some_value(rnd, plain))
        value: bytes | None = target.getvalue()
        assert value is not None
        place = rnd.randrange(len(value)) if value else 0
        damage = rnd.randrange(8)
        if damage == 0:
            value = value[:place] + rnd.randbytes(1) + value[place + 1 :]
        elif damage == 1:
            value = value[:place]
        elif damage == 2:
            value += rnd.randbytes(1)
        elif damage == 3:
            value = rnd.choice([None, b"", rnd.randbytes(20), b"\xff" * 20])
        values.append(value)
    return values


def in_one(parse: Any, values: pa.Array) -> Any:
    """What a decoder says: the columns as text, since NaN is no NaN, and the errors; or what it raises."""
    try:
        columns, errors = parse(values)
    except (ArithmeticError, ValueError, TypeError) as error:
        return str(error)
    for column in columns:
        column.validate(full=True)
    return [(column.type, str(column.to_pylist())) for column in columns], errors


def test_both_ways_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "_VALUES_MIN", 1)
    monkeypatch.setattr(flat, "_ITEMS_MAX", 5)
    rnd = random.Random(11)
    for _ in range(10):
        schema = some_schema(rnd)
        decoder, plain = AvroRows(schema), avro_record(schema).plain
        values = pa.array(some_values(rnd, plain, 30), pa.binary())
        for part in (values, values.slice(7, 20), values.filter(pa.compute.equal(values, values[0]))):
            assert in_one(decoder.parse, part) == in_one(decoder._parse_each, part), schema
        for place in range(10):
            one = values.slice(place, 1)
            assert in_one(decoder.parse, one) == in_one(decoder._parse_each, one), (schema, one)


LISTS = record(
    ("days", {"type": "array", "items": ["null", logical("int", "date")]}),
    ("tags", {"type": "map", "values": record(("a", "string")) | {"name": "tag"}}),
)


def parsed(values: list[bytes]) -> list[dict[str, Any]]:
    columns, errors = AvroRows(LISTS).parse(pa.array(values, pa.binary()))
    assert errors == [None] * len(values)
    rows: list[dict[str, Any]] = pa.table(columns, names=["days", "tags"]).to_pylist()
    return rows


def test_lists_and_maps() -> None:
    one = b"\x04\x02\x02\0\0" + b"\x04\x02x\x02y\x02z\x02u\0"
    row = {"days": [date(1970, 1, 2), None], "tags": [("x", {"a": "y"}), ("z", {"a": "u"})]}
    none: dict[str, Any] = {"days": [], "tags": []}
    assert parsed([one, b"\0\0"] * 200) == [row, none] * 200
    assert parsed([b"\0\0"] * 300) == [none] * 300
    assert parsed([one, b"\0\0"]) == [row, none], "few values are decoded one by one"
    long = b"\x92\x01" + b"\0" * 73 + b"\0" + b"\0"
    assert parsed([one, long] * 200) == [row, {"days": [None] * 73, "tags": []}] * 200
    blocks = b"\x02\0" + b"\x02\0" + b"\0\0"
    sized = b"\x01\x02\0" + b"\0\0"
    assert parsed([blocks, sized] * 200) == [{"days": [None] * 2, "tags": []}, {"days": [None], "tags": []}] * 200
    twice = b"\0" + b"\x04\x02x\x02y\x02x\x02z\0"
    assert parsed([one, twice] * 200) == [row, {"days": [], "tags": [("x", {"a": "z"})]}] * 200


def test_a_large_value_is_counted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (flat, rows):
        monkeypatch.setattr(module, "VALUE_CELLS_MAX", 100)
    columns, errors = AvroRows(record(("a", {"type": "array", "items": "boolean"}))).parse(
        pa.array([b"\x02\x01\0", b"\x3c" + b"\x01" * 30 + b"\0"] * 200, pa.binary())
    )
    assert columns[0].to_pylist() == [[True], None] * 200
    assert errors == [None, TOO_MANY_ITEMS] * 200


@pytest.mark.parametrize(
    ("kind", "is_read"),
    [
        ("long", True),
        (record(("a", "long")), True),
        ({"type": "array", "items": "long"}, True),
        (["null", record(("a", {"type": "map", "values": "long"}))], True),
        ({"type": "array", "items": {"type": "map", "values": "long"}}, False),
        ({"type": "map", "values": record(("a", ["null", {"type": "array", "items": "long"}]))}, False),
    ],
)
def test_lists_within_lists_are_not_flat(kind: Any, is_read: bool) -> None:
    assert is_flat(avro_record(record(("x", kind))).shape) is is_read

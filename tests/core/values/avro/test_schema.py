"""What an Avro schema may say, and which types it gives."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import InvalidInput
from headrace.core.values.columns import ValueParser
from headrace.core.values.schema import parse_value_schema
from headrace.core.values.types import shown
from tests.core.values.test_growth import record


def decimal(precision: Any, **more: Any) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, **more}


def logical(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


def fixed(size: Any, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": f"fixed{size}{len(more)}", "size": size, **more}


def test_columns() -> None:
    kinds: dict[str, tuple[Any, pa.DataType]] = {
        "price": (decimal(9, scale=2), pa.decimal128(9, 2)),
        "whole": (fixed(20, logicalType="decimal", precision=38), pa.decimal128(38, 0)),
        "tags": ({"type": "map", "values": ["null", "string"]}, pa.map_(pa.string(), pa.string())),
        "maps": (
            {"type": "array", "items": {"type": "map", "values": logical("int", "date")}},
            pa.list_(pa.map_(pa.string(), pa.date32())),
        ),
        "hash": (fixed(4), pa.binary()),
        "id": (fixed(16, logicalType="uuid"), pa.string()),
        "half_id": (fixed(8, logicalType="uuid"), pa.binary()),
        "of_text": (logical("string", "uuid"), pa.string()),
        "at": (logical("long", "timestamp-millis"), pa.timestamp("us", tz="UTC")),
        "there": (logical("long", "local-timestamp-micros"), pa.timestamp("us")),
        "time": (logical("int", "time-millis"), pa.int64()),
        "nanos": (logical("long", "timestamp-nanos"), pa.int64()),
    }
    parsed = parse_value_schema(record(*((name, given) for name, (given, _) in kinds.items())))
    assert [field.type for field in parsed.columns()][:-1] == [kind for _, kind in kinds.values()]
    assert [shown(field.type) for field in parsed.fields][:4] == [
        "decimal(9, 2)", "decimal(38, 0)", "map of string", "array of map of date",
    ]  # fmt: skip


def test_types_by_their_names() -> None:
    address = record(("street", "string")) | {"name": "address", "namespace": "shop.types"}
    kind = {"type": "enum", "name": "kind", "symbols": ["A"]}
    parsed = parse_value_schema(
        record(
            ("home", address),
            ("work", ["null", "shop.types.address"]),
            ("kind", kind),
            ("kinds", {"type": "array", "items": "kind"}),
            ("more", {"type": "map", "values": "shop.kind"}),
        )
        | {"namespace": "shop"}
    )
    assert parsed.fields[0].type == parsed.fields[1].type
    assert [shown(field.type) for field in parsed.fields[2:]] == ["string", "array of string", "map of string"]


def test_names_within_names_do_not_multiply() -> None:
    """Each type holds the one before ten times: read in place, the last would have millions of fields."""
    fields: list[Any] = [("t0", record(("a", "long")) | {"name": "n0"})]
    for level in range(1, 8):
        inner = record(*((f"f{place}", f"n{level - 1}") for place in range(10))) | {"name": f"n{level}"}
        fields.append((f"t{level}", inner))
    with pytest.raises(InvalidInput, match="it may have 1000"):
        parse_value_schema(record(*fields))


@pytest.mark.parametrize(
    ("given", "field", "told"),
    [
        ({"type": "record", "name": "x"}, "value_schema", "a list of fields"),
        ({"type": "record", "name": "x", "fields": [1]}, "value_schema", "a name and a type"),
        (record(("a", record(("b", "long")))), "value_schema", "redefined"),
        (record(("a", "null")), "value_schema.a", "must be one of"),
        (record(("a", 5)), "value_schema.a", "must be one of"),
        (record(("a", ["null", "long", "string"])), "value_schema.a", "must be one of"),
        (record(("a", {"type": "map"})), "value_schema.a{}", "must be one of"),
        (record(("a", {"type": "array", "items": "x"})), "value_schema.a[]", "a type further up"),
        (record(("a", ["null", "order"])), "value_schema.a", "a type within itself"),
        (record(("a", record(("b", "no")))), "value_schema.a.b", "must be one of"),
        (record(("a", decimal(39))), "value_schema.a", "1 to 38 digits"),
        (record(("a", decimal("4"))), "value_schema.a", "1 to 38 digits"),
        (record(("a", decimal(4, scale=5))), "value_schema.a", "from 0 to its precision, 4"),
        (record(("a", fixed(0))), "value_schema.a", "1 to 67108864"),
        (record(("a", fixed("4"))), "value_schema.a", "1 to 67108864"),
        (record(("a", fixed(1 << 63))), "value_schema.a", "1 to 67108864"),
        (record(("a", {"type": "enum", "name": "e", "symbols": "AB"})), "value_schema.a", "a list of symbols"),
        (record(("a", "long"), ("A", "long")), "value_schema", "two fields"),
        (json.dumps(record(("a", "long")) | {"name": 5}), "value_schema", "not a schema of Avro"),
    ],
)
def test_schemas_that_are_none(given: Any, field: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        parse_value_schema(given)
    assert refused.value.field == field


def test_a_field_called_like_the_place_of_another() -> None:
    """Each type has a name of its own, so that the schema can be decoded by."""
    items = record(("q", "long")) | {"name": "items"}
    given = record(("a", {"type": "array", "items": items}), ("a[]", items | {"name": "other"}))
    parsed = ValueParser(parse_value_schema(given)).parse(pa.array([b"\x02\x04\x00\x06"]))
    assert parsed.to_pylist() == [{"a": [{"q": 2}], "a[]": {"q": 3}, "value_error": None}]


@pytest.mark.parametrize("name", [{}, "decimal", "uuid"])
def test_a_logical_type_of_another_kind_is_none(name: Any) -> None:
    parsed = parse_value_schema(json.dumps(record(("a", {"type": "int", "logicalType": name}))))
    assert parsed.fields[0].type == "integer"

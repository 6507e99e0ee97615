"""Values in the binary encoding of Avro."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from headrace.core.errors import InvalidInput
from headrace.core.values.avro.rows import AvroRows
from headrace.core.values.columns import ValueParser
from headrace.core.values.schema import parse_value_schema
from tests.core.values.test_growth import record

MICROS = {"type": "long", "logicalType": "timestamp-micros"}
SCHEMA = record(
    ("id", "long"),
    ("price", "double"),
    ("name", {"type": "string", "logicalType": "uuid"}),
    ("raw", "bytes"),
    ("ok", ["null", "boolean"]),
    ("at", MICROS),
    ("day", {"type": "int", "logicalType": "date"}),
    ("kind", {"type": "enum", "name": "kinds", "symbols": ["A", "B"]}),
    ("in", record(("a", ["null", "long"])) | {"name": "inner"}),
    ("rows", {"type": "array", "items": ["null", record(("b", "long")) | {"name": "item"}]}),
    ("one", ["string"]),
    ("more", ["null", MICROS]),
    ("last", ["string", "null"]),
)
ROW = {
    "id": -5, "price": 0.5, "name": "x", "raw": b"\xff", "ok": None, "at": datetime(2026, 1, 1, tzinfo=UTC),
    "day": date(2026, 1, 2), "kind": "B", "in": {"a": 7}, "rows": [{"b": 1}, None], "one": "1",
    "more": datetime(2026, 1, 3, tzinfo=UTC), "last": "end",
}  # fmt: skip
PARSER = ValueParser(parse_value_schema(SCHEMA))


def encoded(row: dict[str, Any], fields: int | None = None) -> bytes:
    """A record in Avro's encoding, of the first fields."""
    plain = SCHEMA | {"fields": [*SCHEMA["fields"]][:fields]}
    plain["fields"][2] = {"name": "name", "type": "string"}
    target = BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(plain), row)
    return target.getvalue()


def parsed(*values: bytes | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = PARSER.parse(pa.array(values, pa.binary())).to_pylist()
    return rows


def test_records() -> None:
    assert PARSER.schema.format == "avro"
    assert parsed(encoded(ROW)) == [ROW | {"value_error": None}]


def test_values_of_a_schema_that_has_grown_since_end_early() -> None:
    rows = parsed(encoded(ROW, 11), encoded(ROW, 12), encoded(ROW))
    assert [(row["one"], row["more"] is None, row["last"]) for row in rows] == [
        ("1", True, None), ("1", False, None), ("1", False, "end"),
    ]  # fmt: skip
    assert [row["value_error"] for row in rows] == [None] * 3


def test_values_that_do_not_fit() -> None:
    whole = encoded(ROW)
    negative_length = b"\x02" + b"\0" * 8 + b"\x01"
    rows = parsed(None, b"", b"\x02", whole + b"\0", encoded(ROW, 10), b"\xff" * 40, negative_length)
    assert [row["value_error"] for row in rows] == ["the value is null"] + [
        "the value is not a record of the schema"
    ] * 6
    assert all(value is None for row in rows for name, value in row.items() if name != "value_error")


def test_a_schema_of_many_optional_fields() -> None:
    names = [f"f{place}" for place in range(1000)]
    schema = record(*((name, ["null", "long"]) for name in names))
    parser = ValueParser(parse_value_schema(schema))
    values = [b"\x02\x04" * count for count in (0, 1, 2, 999, 1000, 1001)]
    rows = parser.parse(pa.array([*values, b"\x02"], pa.binary())).to_pylist()
    assert [sum(row[name] == 2 for name in names) for row in rows] == [0, 1, 2, 999, 1000, 0, 0]
    assert [row["value_error"] is None for row in rows] == [False, True, True, True, True, False, False]


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    for use in (parse_value_schema, AvroRows):
        with pytest.raises(InvalidInput, match="headrace\\[avro\\]"):
            use(record(("never_parsed_before", "long")))

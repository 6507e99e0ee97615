"""Schemas that are inferred from values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.core.errors import InvalidInput
from headrace.core.values.columns import ValueParser
from headrace.core.values.schema import parse_value_schema
from headrace.tables.infer import infer_value_schema


def test_inference() -> None:
    inferred = infer_value_schema([
        b'{"id": 1, "n": 1, "at": "2026-01-01T00:00:00Z", "day": "2026-01-01", "mixed": 1, "in": {"a": [1, null]}}',
        b'{"id": 2, "n": 1.5, "at": "2026-01-02T00:00:00+01:00", "day": "2026-01-02", "mixed": "x", "in": null}',
        b"no JSON", None, b"[]",
    ])  # fmt: skip
    assert inferred["required"] == ["id", "n", "at", "day", "mixed"]
    assert inferred["properties"] == {
        "id": {"type": "integer"},
        "n": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "mixed": {},
        "in": {
            "type": "object",
            "properties": {"a": {"type": "array", "items": {"type": "integer"}}},
            "required": ["a"],
        },
    }
    with pytest.raises(InvalidInput, match="none of the messages"):
        infer_value_schema([b"1"])


def test_values_with_the_header_of_a_registry() -> None:
    values = [b"\0\0\0\0\x07" + value for value in (b'{"id": 1}', b'{"id": 2}')]
    inferred = infer_value_schema([*values, b'{"other": 1}'])
    assert inferred == {
        "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "framing": "registry",
    }  # fmt: skip
    rows = ValueParser(parse_value_schema(inferred)).parse(pa.array(values, pa.binary()))
    assert rows["id"].to_pylist() == [1, 2]


def test_samples_fit_what_is_inferred() -> None:
    values = [
        b'{"a": 1, "A": "two", "a\\"b": 1, "": 1, "week": "2026-W01-1", "big": 9223372036854775808, "key": true}',
        b'{"a": 2, "empty": {}, "none": null, "list": [], "mixed": [1, "x"], "deep": ' + b"[" * 30 + b"]" * 30 + b"}",
    ]
    inferred = infer_value_schema(values)
    assert inferred["properties"]["week"] == {"type": "string"}
    assert inferred["properties"]["big"] == {"type": "number"}
    rows = ValueParser(parse_value_schema(inferred)).parse(pa.array(values, pa.binary())).to_pylist()
    assert [row["value_error"] for row in rows] == [None, None]
    assert [row["a"] for row in rows] == [1, 2]
    assert "A" not in rows[0]
    assert rows[1]["mixed"] == ["1", '"x"']

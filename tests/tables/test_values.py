"""Schemas of values: what they may say, and how they are inferred."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import InvalidInput
from headrace.tables.values import infer_value_schema, parse_value_schema, spark_schema


def test_types_of_spark() -> None:
    parsed = parse_value_schema(
        '{"type": "object", "required": ["a`b"], "properties": {"a`b": {"type": "integer"}, "key": {"type": "boolean"},'
        '"list": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "string", "format": "date"}'
        "}}}}}"
    )
    assert spark_schema(parsed) == "`a``b` BIGINT NOT NULL, `key` BOOLEAN, `list` ARRAY<STRUCT<`d`: DATE>>"
    assert [field.column for field in parsed.fields] == ["a`b", "value_key", "list"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{", "JSON Schema"),
        ('{"type": "integer"}', "an object"),
        ({"type": "object"}, "properties"),
        ({"type": "object", "properties": {"a": {"type": "decimal"}}}, "the type of a must be one of"),
        ({"type": "object", "properties": {"a": 1}}, "a must be an object with a type"),
        ({"type": "object", "properties": {"a": {"type": "string"}, "A": {"type": "string"}}}, "two properties"),
    ],
)
def test_schemas_that_are_none(given: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        parse_value_schema(given)
    assert refused.value.field == "value_schema"


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
        "mixed": {"type": "string"},
        "in": {
            "type": "object",
            "properties": {"a": {"type": "array", "items": {"type": "integer"}}},
            "required": ["a"],
        },
    }
    parse_value_schema(inferred)
    with pytest.raises(InvalidInput, match="none of the messages"):
        infer_value_schema([b"1"])

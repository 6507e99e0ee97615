"""What a schema of values may say, and which columns it gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import InvalidInput
from headrace.core.limits import VALUE_SCHEMA_BYTES_MAX
from headrace.core.messages import READ_SCHEMA
from headrace.core.values.schema import parse_value_schema
from headrace.core.values.types import ERROR_COLUMN, TAKEN, shown


def of(**properties: Any) -> dict[str, Any]:
    """A JSON Schema with these properties."""
    return {"type": "object", "properties": properties}


def deep(levels: int) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return of(a=kind)


def test_columns_of_json() -> None:
    parsed = parse_value_schema(
        {
            "type": "object",
            "required": ["id", "maybe"],
            "properties": {
                "id": {"type": "integer"},
                "maybe": {"type": ["null", "number"]},
                "key": {"type": "boolean"},
                "Offset.x": {"type": "string"},
                "any": {},
                "either": {"type": ["string", "integer"]},
                "at": {"type": "string", "format": "date-time"},
                "mail": {"type": "string", "format": "email"},
                "in": of(days={"type": "array", "items": {"type": "string", "format": "date"}}, more={"type": "array"}),
            },
        }
    )
    assert parsed.format == "json"
    assert parsed.columns() == pa.schema(
        {
            "id": pa.int64(),
            "maybe": pa.float64(),
            "value_key": pa.bool_(),
            "value_Offset.x": pa.string(),
            "any": pa.string(),
            "either": pa.string(),
            "at": pa.timestamp("us", tz="UTC"),
            "mail": pa.string(),
            "in": pa.struct([("days", pa.list_(pa.date32())), ("more", pa.list_(pa.string()))]),
            ERROR_COLUMN: pa.string(),
        }
    )
    assert [field.name for field in parsed.fields if field.is_required] == ["id"]
    assert [shown(field.type) for field in parsed.fields][-2:] == ["string", "object"]


def test_objects_with_any_keys_are_maps() -> None:
    free = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}
    parsed = parse_value_schema(
        of(a=free, b={"type": "object", "additionalProperties": True}, c=of(d={"type": "string"}) | free)
    )
    assert [field.type for field in parsed.columns()][:3] == [
        pa.map_(pa.string(), pa.list_(pa.int64())),
        pa.map_(pa.string(), pa.string()),
        pa.struct([("d", pa.string())]),
    ]
    assert [shown(field.type) for field in parsed.fields][:2] == ["map of array of integer", "map of any"]


def test_columns_of_messages_keep_their_names() -> None:
    assert {*READ_SCHEMA.names} < TAKEN


def test_the_text_is_one_however_it_was_written() -> None:
    given = of(a={"type": "integer"})
    assert parse_value_schema(given) == parse_value_schema(
        '{"type":"object",  "properties":{"a":{"type":"integer"}}}\n'
    )


@pytest.mark.parametrize(
    ("given", "field", "told"),
    [
        ("{", "value_schema", "JSON Schema of an object, or an Avro schema"),
        ("[" * 100_00, "value_schema", "JSON Schema of an object"),
        ("1" * (VALUE_SCHEMA_BYTES_MAX + 1), "value_schema", f"may have {VALUE_SCHEMA_BYTES_MAX}"),
        ({"a": object()}, "value_schema", "cannot be written as JSON"),
        ('{"type": "integer"}', "value_schema", "describe an object"),
        ("{}", "value_schema", "describe an object"),
        ({"type": "object"}, "value_schema", "needs properties"),
        (of(a={"type": "decimal"}), "value_schema.a", "must be one of integer"),
        (of(a=1), "value_schema.a", "an object with a type"),
        (of(a={"type": "object", "additionalProperties": False}), "value_schema.a", "or additionalProperties"),
        (of(a={"type": "object", "additionalProperties": {"type": "no"}}), "value_schema.a{}", "must be one of"),
        (of(a={"type": "object", "additionalProperties": of(b={}, B={})}), "value_schema.a", "two fields"),
        ({"type": "object", "additionalProperties": {}}, "value_schema", "an object with properties"),
        (of(a=of(b={"type": "array", "items": {"type": "no"}})), "value_schema.a.b[]", "must be one of"),
        (of(a=of(b={}) | {"required": "b"}), "value_schema.a.required", "a list of properties"),
        (of(a={}) | {"required": ["b"]}, "value_schema.required", "one of the properties"),
        (of(a={}) | {"required": [None, {}]}, "value_schema.required", "one of the properties"),
        ('{"type": "\ud800"}', "value_schema", "JSON Schema of an object"),
        (of(a={"type": "\ud800"}), "value_schema", "cannot be written as JSON"),
        (of(a={"type": "string"}, A={"type": "string"}), "value_schema", "two fields"),
        (of(a={"type": "array", "items": of(b={}, B={})}), "value_schema.a", "two fields"),
        (of(key={}, value_key={}), "value_schema", "two fields"),
        (of(a=of(b={}), **{"A.b": {}}), "value_schema.a", "two fields"),
        (of(**{"": {}}), "value_schema", "must not be empty"),
        (of(**{'a"b': {}}), "value_schema", "quotation marks"),
        (of(**{str(each): {} for each in range(1001)}), "value_schema", "may have 1000"),
        (deep(17), "value_schema.a", "16 levels"),
    ],
)
def test_schemas_that_are_none(given: Any, field: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        parse_value_schema(given)
    assert refused.value.field.rstrip("[]") == field.rstrip("[]")
    assert len(str(refused.value)) < 500


def test_a_schema_of_a_thousand_fields() -> None:
    assert len(parse_value_schema(of(**{str(each): {} for each in range(1000)})).fields) == 1000

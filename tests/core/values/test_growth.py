"""How a schema may change."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import InvalidInput
from headrace.core.topics.settings import TopicSettings
from tests.core.values.test_schema import of

NUMBER, TEXT = {"type": "integer"}, {"type": "string"}
FIRST = of(id=NUMBER, at=TEXT, inner=of(a=NUMBER), rows={"type": "array", "items": of(b=NUMBER)}) | {"required": ["id"]}

INNER = {"name": "inner"}


def changed(**properties: Any) -> dict[str, Any]:
    return FIRST | {"properties": FIRST["properties"] | properties}


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "order", "fields": [{"name": name, "type": kind} for name, kind in fields]}


@pytest.mark.parametrize(
    "grown",
    [
        FIRST,
        changed(more=TEXT),
        changed(inner=of(a=NUMBER, more=of(deeper=TEXT))),
        changed(rows={"type": "array", "items": of(b=NUMBER, more=TEXT)}),
        FIRST | {"required": []},
        None,
    ],
)
def test_growth(grown: Any) -> None:
    before = TopicSettings.make(value_schema=FIRST)
    after = before.change(value_schema=grown)
    assert after.value_schema is None or after.change(value_schema=grown) == after
    assert before.change(archive="on").value_schema == before.value_schema


@pytest.mark.parametrize(
    ("other", "field", "rule"),
    [
        (changed(at=NUMBER), "value_schema.at", "its type was string and cannot change"),
        (changed(id={"type": "number"}), "value_schema.id", "its type was integer"),
        (changed(inner=TEXT), "value_schema.inner", "its type was object"),
        (changed(inner=of(a=TEXT)), "value_schema.inner.a", "its type was integer"),
        (changed(inner=of(b=TEXT)), "value_schema.inner.a", "cannot be removed"),
        (changed(rows={"type": "array", "items": of(b=TEXT)}), "value_schema.rows[].b", "its type was integer"),
        (changed(rows=of(b=NUMBER)), "value_schema.rows", "its type was array of object"),
        (FIRST | {"required": ["id", "at"]}, "value_schema.at", "it was optional"),
        (changed(more=TEXT) | {"required": ["id", "more"]}, "value_schema.more", "a new field must be optional"),
        (of(id=NUMBER), "value_schema.at", "cannot be removed"),
        (record(("id", "long")), "value_schema", "its values were json"),
    ],
)
def test_changes_that_are_refused(other: Any, field: str, rule: str) -> None:
    before = TopicSettings.make(value_schema=FIRST)
    with pytest.raises(InvalidInput, match="may only grow by optional fields") as refused:
        before.change(value_schema=other)
    assert refused.value.field == field
    assert rule in refused.value.rule


def test_fields_of_avro_are_added_at_the_end() -> None:
    optional = ["null", "long"]
    before = TopicSettings.make(value_schema=record(("id", "long"), ("at", optional)))
    assert before.change(value_schema=record(("id", "long"), ("at", optional), ("more", optional)))
    for other, told in [
        (record(("id", "long"), ("more", optional), ("at", optional)), "added at the end"),
        (record(("id", "long"), ("at", optional), ("more", "long")), "must be optional"),
    ]:
        with pytest.raises(InvalidInput, match=told):
            before.change(value_schema=other)
    nested = TopicSettings.make(value_schema=record(("in", record(("a", "long")) | INNER)))
    with pytest.raises(InvalidInput, match="within a field of Avro"):
        nested.change(value_schema=record(("in", record(("a", "long"), ("b", optional)) | INNER)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int", "long"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, {"type": "enum", "name": "f", "symbols": ["A", "B"]}),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}),
    ],
)
def test_encodings_that_read_values_of_before_alike(before: Any, after: Any) -> None:
    assert TopicSettings.make(value_schema=record(("a", before))).change(value_schema=record(("a", after)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("float", "double"),
        ("long", ["null", "long"]),
        (["null", "long"], ["long", "null"]),
        ("string", {"type": "enum", "name": "e", "symbols": ["A"]}),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, {"type": "enum", "name": "e", "symbols": ["B", "A"]}),
        ("bytes", {"type": "fixed", "name": "f", "size": 4}),
        ({"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-micros"}),
        ({"type": "array", "items": "float"}, {"type": "array", "items": "double"}),
    ],
)
def test_encodings_that_do_not(before: Any, after: Any) -> None:
    with pytest.raises(InvalidInput, match="values of before would be read wrongly") as refused:
        TopicSettings.make(value_schema=record(("a", before))).change(value_schema=record(("a", after)))
    assert refused.value.field == "value_schema.a"


def test_maps_grow_as_their_values_do() -> None:
    def free(**properties: Any) -> dict[str, Any]:
        return of(a={"type": "object", "additionalProperties": of(**properties)})

    before = TopicSettings.make(value_schema=free(b=NUMBER))
    assert before.change(value_schema=free(b=NUMBER, c=TEXT))
    with pytest.raises(InvalidInput, match="its type was integer") as refused:
        before.change(value_schema=free(b=TEXT))
    assert refused.value.field == "value_schema.a{}.b"


def test_framing() -> None:
    def framed(*ids: int) -> dict[str, Any]:
        return FIRST | {"framing": "registry"} | ({"schema_ids": [*ids]} if ids else {})

    for before, after in ((framed(1), framed(1, 2)), (framed(1), framed()), (FIRST, FIRST | {"framing": "none"})):
        assert TopicSettings.make(value_schema=before).change(value_schema=after)
    for before, after, told in (
        (FIRST, framed(), "what is before values cannot change"),
        (framed(), FIRST, "what is before values cannot change"),
        (framed(), framed(1), "any id"),
        (framed(1, 2), framed(2), "cannot be removed"),
    ):
        with pytest.raises(InvalidInput, match=told):
            TopicSettings.make(value_schema=before).change(value_schema=after)


def test_a_schema_is_a_text_or_a_mapping() -> None:
    with pytest.raises(InvalidInput, match="value_schema"):
        TopicSettings.make(value_schema=5)

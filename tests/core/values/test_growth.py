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


def test_a_schema_is_a_text_or_a_mapping() -> None:
    with pytest.raises(InvalidInput, match="value_schema"):
        TopicSettings.make(value_schema=5)

"""Values decoded by the schema of their topic."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headrace.client.where.expression import parse
from headrace.client.where.matching import matches
from headrace.console.messages.typed import Readable, TypedValues
from tests.client.where.test_matching import batch_of

AVRO = json.dumps({"type": "record", "name": "order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "raw", "type": "bytes"},
]})  # fmt: skip
JSON = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
ORDER = b"\x02\x00\x04\xff\x00"


def test_values_of_avro_become_json() -> None:
    typed = TypedValues(AVRO)
    assert typed.is_needed
    shown = '{"id": 1, "at": "1970-01-01 00:00:00+00:00", "raw": "base64:/wA="}'
    assert typed.decode(ORDER) == Readable(shown)
    assert typed.decode(None) == Readable()
    wrong = typed.decode(b"\x01")
    assert wrong.text is None and wrong.problem
    large = b"\x02\x00" + b"\x80\x80\x10" + bytes(1 << 17)
    assert typed.previews([ORDER, None, b"\x01", large]) == [shown, None, None, None], "large ones stay bytes in lists"


def test_json_behind_the_header_of_a_registry_is_decoded() -> None:
    typed = TypedValues(json.dumps(JSON | {"framing": "registry"}))
    assert typed.decode(b'\x00\x00\x00\x00\x07{"id": 5}') == Readable('{"id": 5}')


def test_plain_json_stays_as_it_is_and_is_judged() -> None:
    typed = TypedValues(json.dumps(JSON))
    assert not typed.is_needed
    assert typed.decode(b'{"id": 5}') == Readable()
    wrong = typed.decode(b'{"id": "five"}')
    assert wrong.text is None and wrong.problem is not None and "id" in wrong.problem
    assert typed.previews([b'{"id": 5}']) == [None]


def test_without_a_schema_nothing_is_decoded() -> None:
    typed = TypedValues(None)
    assert typed.decode(ORDER) == Readable() and typed.previews([ORDER]) == [None]


def test_a_schema_that_is_not_understood_says_so() -> None:
    typed = TypedValues('{"type": "text"}')
    assert not typed.is_needed
    assert typed.decode(ORDER).problem is not None


@pytest.mark.parametrize(("expression", "found"), [("value.id == 1", [True, False]), ("value.id == 9", [False] * 2)])
def test_a_search_compares_fields_of_avro(expression: str, found: list[bool]) -> None:
    batch = TypedValues(AVRO).readable(batch_of([ORDER, b"\x01"]))
    assert matches(parse(expression), batch).to_pylist() == found
    assert isinstance(batch, pa.RecordBatch)

"""Values that begin with the header of a schema registry."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.core.codecs import columns as codecs
from headrace.core.errors import InvalidInput
from headrace.core.values.columns import ValueParser
from headrace.core.values.framing import Framing, unframe
from headrace.core.values.schema import parse_value_schema
from tests.core.values.test_growth import record
from tests.core.values.test_schema import of

REGISTRY = {"framing": "registry"}
JSON = of(id={"type": "integer"}) | REGISTRY
UNFRAMED = "the value does not begin with the header of a schema registry"


def framed(value: bytes, number: int = 7) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + value


def rows(schema: Any, *values: bytes | None, codec: str | None = None) -> list[tuple[Any, str | None]]:
    given = pa.array(values, pa.binary())
    named = pa.array([codec] * len(values), pa.string())
    found = ValueParser(parse_value_schema(schema)).parse(codecs.encode(given, codec) if codec else given, named)
    return list(zip(found["id"].to_pylist(), found["value_error"].to_pylist(), strict=True))


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_json(codec: str | None) -> None:
    values = [
        framed(b'{"id": 1}'),
        b'{"id": 2}',
        None,
        b"",
        b"\0",
        b"\0\0\0\0",
        framed(b""),
        framed(b'{"id": 3}', 1 << 31),
    ]
    assert rows(JSON, *values, codec=codec) == [
        (1, None), (None, UNFRAMED), (None, "the value is null"), (None, UNFRAMED), (None, UNFRAMED), (None, UNFRAMED),
        (None, "the value is not JSON: input data was truncated"), (3, None),
    ]  # fmt: skip


def test_avro() -> None:
    schema = record(("id", "long")) | REGISTRY
    assert rows(schema, framed(b"\x02"), b"\x02") == [(1, None), (None, UNFRAMED)]


def test_ids() -> None:
    schema = JSON | {"schema_ids": [7, 4294967295]}
    told = "the value has the schema id 8, which the schema does not name"
    values = [framed(b'{"id": 1}'), framed(b'{"id": 1}', 8), framed(b'{"id": 1}', 4294967295), b"x"]
    assert rows(schema, *values) == [(1, None), (None, told), (1, None), (None, UNFRAMED)]
    assert rows(schema, b"x") == [(None, UNFRAMED)]


def test_a_value_that_its_codec_does_not_accept_is_told_so() -> None:
    found = ValueParser(parse_value_schema(JSON)).parse(pa.array([b"x"], pa.binary()), pa.array(["zstd"]))
    assert found["value_error"].to_pylist() == ["the value cannot be decoded by its codec zstd"]


def test_a_part_of_an_array() -> None:
    values = pa.array([b"no", framed(b"a"), None, b"no", framed(b"b")], pa.binary()).slice(1)
    bodies, faults = unframe(Framing(frozenset([7])), values)
    assert (bodies.to_pylist(), faults) == ([b"a", None, None, b"b"], {2: UNFRAMED})
    assert unframe(Framing(), pa.nulls(2, pa.binary()))[1] == {}


def test_no_framing_is_none() -> None:
    assert rows(of(id={"type": "integer"}) | {"framing": "none"}, b'{"id": 1}') == [(1, None)]


@pytest.mark.parametrize(
    ("given", "field", "told"),
    [
        ({"framing": "confluent"}, "framing", "none, or registry"),
        ({"framing": ["registry"]}, "framing", "none, or registry"),
        ({"schema_ids": [1]}, "schema_ids", 'only values with "framing": "registry"'),
        (REGISTRY | {"schema_ids": 1}, "schema_ids", "a list of ids"),
        (REGISTRY | {"schema_ids": []}, "schema_ids", "from 1 to 1000"),
        (REGISTRY | {"schema_ids": [1, True]}, "schema_ids", "from 0 to 4294967295"),
        (REGISTRY | {"schema_ids": [-1]}, "schema_ids", "from 0 to 4294967295"),
    ],
)
def test_framings_that_are_none(given: Any, field: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        parse_value_schema(of(id={}) | given)
    assert refused.value.field == f"value_schema.{field}"

"""Values as columns: which values fit, and what of those that do not is kept."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.codecs import columns as codecs
from headrace.core.errors import InvalidInput
from headrace.core.limits import VALUE_SLICE_BYTES, VALUE_SLICE_ROWS
from headrace.core.values.columns import ValueParser, parser_of
from headrace.core.values.json import JsonRows, is_text_of
from headrace.core.values.schema import parse_value_schema
from tests.core.values.test_schema import of

SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "name": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "any": {},
        "in": of(a={"type": "integer"}) | {"required": ["a"]},
        "rows": {"type": "array", "items": of(b={"type": "boolean"})},
        "grid": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "anys": {"type": "array"},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
        "free": {"type": "object", "additionalProperties": True},
    },
}
PARSER = ValueParser(parse_value_schema(SCHEMA))
NOTHING = dict.fromkeys(PARSER.columns.names)


def parsed(value: bytes | None, codec: str | None = None) -> dict[str, Any]:
    """The columns of one value, with those that are not null."""
    row = PARSER.parse(pa.array([value], pa.binary()), pa.array([codec], pa.string())).to_pylist()[0]
    assert row.keys() == NOTHING.keys()
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (b'{"id": 1, "price": 2, "name": "\\u0000\xc3\xa9", "other": [{}]} ', {"id": 1, "price": 2.0, "name": "\0é"}),
        (b'{"id": -9223372036854775808, "price": 18446744073709551616}', {"id": -(1 << 63), "price": 2.0**64}),
        (b'{"id": 1, "id": 2}', {"id": 2}),
        (b'{"id": 1, "name": null, "at": null, "in": null, "rows": null, "any": null}', {"id": 1}),
        (b'{"id": 1, "at": "2026-01-01T01:00:00+01:00"}', {"id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}),
        (b'{"id": 1, "day": "2026-02-28"}', {"id": 1, "day": date(2026, 2, 28)}),
        (b'{"id": 1, "any": {"x": "y"}}', {"id": 1, "any": '{"x": "y"}'}),
        (b'{"id": 1, "in": {"a": 5, "b": 6}}', {"id": 1, "in": {"a": 5}}),
        (b'{"id": 1, "rows": [{"b": true}, null, {}]}', {"id": 1, "rows": [{"b": True}, None, {"b": None}]}),
        (b'{"id": 1, "rows": []}', {"id": 1, "rows": []}),
        (b'{"id": 1, "grid": [[1, null], null, []]}', {"id": 1, "grid": [[1, None], None, []]}),
        (b'{"id": 1, "anys": [1, "x", null]}', {"id": 1, "anys": ["1", '"x"', None]}),
        (b'{"id": 1, "tags": {"a": 1, "": null, "a": 2}}', {"id": 1, "tags": [("a", 2), ("", None)]}),
        (b'{"id": 1, "tags": {}}', {"id": 1, "tags": []}),
        (b'{"id": 1, "tags": null}', {"id": 1}),
        (b'{"id": 1, "free": {"a": [1], "b": null}}', {"id": 1, "free": [("a", "[1]"), ("b", None)]}),
    ],
)
def test_values_that_fit(value: bytes, row: dict[str, Any]) -> None:
    assert parsed(value) == row


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, "the value is null"),
        (b"", "the value is not JSON: input data was truncated"),
        (b"  ", "the value is not JSON: input data was truncated"),
        (b"{", "the value is not JSON: input data was truncated"),
        (b'{"id": 1}{"id": 2}', "the value is not JSON: trailing characters (byte 10)"),
        (b'{"id": NaN}', "the value is not JSON: invalid character (byte 7)"),
        (b"[1]", "the value is not a JSON object: expected object, got array"),
        (b"null", "the value is not a JSON object: expected object, got null"),
        (b'{"id": 1, "other": "\xff"}', "the value is not valid UTF-8"),
        (b'{"name": "x"}', "the field id is missing"),
        (b'{"id": null}', "the field id: expected integer, got null"),
        (b'{"id": "1"}', "the field id: expected integer, got string"),
        (b'{"id": 1.0}', "the field id: expected integer, got number"),
        (b'{"id": 9223372036854775808}', "the field id: expected integer <= 9223372036854775807"),
        (b'{"id": 1, "price": 1e400}', "the field price: number out of range"),
        (b'{"id": 1, "name": 1}', "the field name: expected string, got integer"),
        (b'{"id": 1, "at": "2026-01-01T00:00:00"}', "the field at: expected date-time with a timezone component"),
        (b'{"id": 1, "day": "2026-02-30"}', "the field day: invalid RFC3339 encoded date"),
        (b'{"id": 1, "in": {}}', "the field in.a is missing"),
        (b'{"id": 1, "tags": {"a": "x"}}', "the field tags[...]: expected integer, got string"),
        (b'{"id": 1, "tags": []}', "the field tags: expected object, got array"),
        (b'{"id": 1, "rows": [{"b": 1}]}', "the field rows[0].b: expected boolean, got integer"),
        (b'{"id": 1, "other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "the value is nested too deeply"),
    ],
)
def test_values_that_do_not(value: bytes | None, error: str) -> None:
    assert parsed(value) == {"value_error": error}


def test_a_wrong_value_does_not_affect_its_neighbours() -> None:
    values = [b'{"id": %d}' % number if number % 3 else b"x" for number in range(10)]
    rows = PARSER.parse(pa.array(values, pa.binary())).to_pylist()
    assert [row["id"] for row in rows] == [number if number % 3 else None for number in range(10)]
    assert [row["value_error"] is None for row in rows] == [number % 3 > 0 for number in range(10)]


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_a_time_beyond_the_years_of_utc_is_the_fault_of_its_row_alone(at: str) -> None:
    values = [b'{"id": 1}', b'{"id": 2, "at": "%s"}' % at.encode(), b'{"id": 3}', b"x", b'{"id": 5}']
    rows = PARSER.parse(pa.array(values, pa.binary())).to_pylist()
    assert [row["id"] for row in rows] == [1, None, 3, None, 5]
    assert rows[1]["value_error"] == "the value does not fit: a date-time is not in the years 1 to 9999 in UTC"
    assert [row["value_error"] is None for row in rows] == [True, False, True, False, True]


def test_values_that_all_do_not_fit_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    decode = JsonRows._rows

    def counting(rows: JsonRows, values: pa.Array) -> Any:
        decoded.append(len(values))
        return decode(rows, values)

    monkeypatch.setattr(JsonRows, "_rows", counting)
    late = pa.array([b'{"id": 1, "at": "9999-12-31T23:59:59-01:00"}'] * 500, pa.binary())
    errors = PARSER.parse(late).column("value_error").to_pylist()
    assert errors == ["the value does not fit: a date-time is not in the years 1 to 9999 in UTC"] * 500
    assert decoded == [500]


def test_large_documents_are_parsed_few_at_a_time() -> None:
    large = b'{"id": 1, "name": "' + b"x" * (1 << 20) + b'"}'
    slices = list(PARSER.slices(pa.array([large] * 8, pa.binary())))
    assert [each.num_rows for each in slices] == [1] * 8
    assert slices[0].column("name")[0].as_py() == "x" * (1 << 20)
    small = pa.array([b'{"id": 1}'] * (VALUE_SLICE_ROWS + 1), pa.binary())
    assert [each.num_rows for each in PARSER.slices(small)] == [VALUE_SLICE_ROWS, 1]
    assert PARSER.parse(small.slice(0, 0)).num_rows == 0


def test_values_are_decoded_first() -> None:
    plain = pa.array([b'{"id": 1}', b'{"id": 2}', None, b'{"id": 4}'], pa.binary())
    packed = codecs.encode(plain.slice(0, 3), "zstd").to_pylist()
    values = pa.array([*packed, b'{"id": 4}', b"no zstd", b"x"], pa.binary())
    named = pa.array(["zstd", "zstd", "zstd", None, "zstd", "unknown"], pa.string())
    rows = PARSER.parse(values, named).to_pylist()
    assert [row["id"] for row in rows] == [1, 2, None, 4, None, None]
    assert [row["value_error"] for row in rows] == [
        None, None, "the value is null", None, "the value cannot be decoded by its codec zstd",
        "the value cannot be decoded by its codec unknown",
    ]  # fmt: skip


def test_values_that_grow_are_parsed_few_at_a_time() -> None:
    large = b'{"id": 1, "name": "' + b" " * (VALUE_SLICE_BYTES // 2) + b'"}'
    packed = codecs.encode(pa.array([large] * 4, pa.binary()), "zstd")
    slices = list(PARSER.slices(packed, pa.array(["zstd"] * 4, pa.string())))
    assert [each.num_rows for each in slices] == [1, 1, 1, 1]
    assert all(each.column("value_error").null_count == 1 for each in slices)


def test_a_codec_that_this_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> bytes:
        raise InvalidInput("codec", "lzop", "it is not installed")

    monkeypatch.setitem(codecs._DECOMPRESS, "lzop", missing)
    values = pa.array([b"packed", b'{"id": 1}', b"packed"], pa.binary())
    rows = PARSER.parse(values, pa.array(["lzop", None, "lzop"], pa.string())).to_pylist()
    assert [row["id"] for row in rows] == [None, 1, None]
    assert [row["value_error"] for row in rows] == ["codec is lzop: it is not installed", None] * 1 + [
        "codec is lzop: it is not installed"
    ]


def test_parsers_are_made_once() -> None:
    text = parse_value_schema(SCHEMA).text
    assert parser_of(text) is parser_of(text)


def test_texts_of_dates_and_moments() -> None:
    texts = ["2026-01-01", "2026-W01-1", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00"]
    assert [is_text_of("date", text) for text in texts] == [True, False, False, False]
    assert [is_text_of("date-time", text) for text in texts] == [False, False, True, False]

"""Columns as values: what is written, the parser reads back; what the schema does not allow is refused."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import InvalidInput, InvalidMessage
from headrace.core.values.columns import ValueParser
from headrace.core.values.schema import parse_value_schema
from headrace.core.values.writer import ValueWriter
from tests.core.values.test_columns import SCHEMA
from tests.core.values.test_schema import of

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "key", "type": ["null", "string"]},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "time", "type": ["null", {"type": "int", "logicalType": "time-millis"}]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "there", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "ratio", "type": ["null", "float"]},
        {"name": "tags", "type": ["null", {"type": "map", "values": ["null", "long"]}]},
        {"name": "lines", "type": ["null", {"type": "array", "items": {
            "type": "record", "name": "line", "fields": [{"name": "n", "type": "long"}]}}]},
    ],
}  # fmt: skip
NOW = datetime(2026, 7, 1, 12, 0, 0, 5, tzinfo=UTC)
JSON_ROWS: list[dict[str, Any]] = [
    {
        "id": 1, "price": 2.5, "name": "é\0\"", "at": NOW, "day": date(2026, 2, 28), "any": '{"x": ["y"]}',
        "in": {"a": 5}, "rows": [{"b": True}, None, {"b": None}], "grid": [[1, None], None, []],
        "anys": ["1", '"a"'], "tags": [("a", 1), ("b", None)], "free": [("c", "[]")],
    },
    {"id": -(1 << 63)},
]  # fmt: skip
AVRO_ROWS: list[dict[str, Any]] = [
    {
        "id": 7, "value_key": "k", "price": Decimal("-12.34"), "day": date(2026, 2, 28), "time": 5_000, "at": NOW,
        "there": NOW.replace(tzinfo=None), "raw": b"\0\xff", "ratio": 0.5, "tags": [("a", 1), ("b", None)],
        "lines": [{"n": 1}, {"n": 2}],
    },
    {"id": -5},
]  # fmt: skip


def written(schema: dict[str, Any], rows: list[dict[str, Any]]) -> tuple[ValueParser, pa.RecordBatch, pa.Array]:
    parsed = parse_value_schema(schema)
    parser, writer = ValueParser(parsed), ValueWriter(parsed)
    columns = pa.RecordBatch.from_pylist(rows, parser.columns).drop_columns(["value_error"])
    writer.check(columns.schema)
    return parser, columns, writer.values(columns)


@pytest.mark.parametrize(
    ("schema", "rows"),
    [(SCHEMA, JSON_ROWS), (AVRO, AVRO_ROWS), ({**AVRO, "framing": "registry", "schema_ids": [3, 5]}, AVRO_ROWS)],
    ids=["JSON", "Avro", "registry"],
)
def test_what_is_written_is_read_back(schema: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    parser, columns, values = written(schema, rows)
    assert parser.parse(values).to_pylist() == [{**row, "value_error": None} for row in columns.to_pylist()]


def test_the_header_has_the_newest_id() -> None:
    _, _, values = written({**AVRO, "framing": "registry", "schema_ids": [5, 3]}, AVRO_ROWS)
    assert values[0].as_py()[:5] == b"\0\0\0\0\5"
    with pytest.raises(InvalidInput, match="the id in the header of the registry is needed"):
        written({**AVRO, "framing": "registry"}, AVRO_ROWS)


def test_nulls_of_json_are_left_out_unless_they_are_required() -> None:
    schema = of(a={"type": "integer"}, b={"type": ["integer", "null"]}) | {"required": ["b"]}
    assert written(schema, [{}])[2].to_pylist() == [b'{"b":null}']


@pytest.mark.parametrize(
    ("schema", "rows", "told"),
    [
        (SCHEMA, [{"id": 1}, {}], "row 1: id is null: the schema of the values requires it"),
        (SCHEMA, [{"id": 1, "in": {"a": None}}], "row 0: in.a is null"),
        (SCHEMA, [{"id": 1, "price": float("nan")}], "row 0: price is nan: JSON has no such number"),
        (SCHEMA, [{"id": 1, "free": [("x", "{")]}], r"row 0: free{} is '{': it must be JSON"),
        (AVRO, [{"id": 1}, {"id": 1 << 31}], "row 1: value is not as the schema says: .*expected int"),
        (AVRO, [{"id": 1, "time": 86_400_000_000}], "row 0: value is 86400000000 us: a time is within a day"),
    ],
)
def test_a_row_that_does_not_fit_is_named(schema: dict[str, Any], rows: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(InvalidMessage, match=told):
        written(schema, rows)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"id": pa.int32(), "NAME": pa.string(), "price": pa.float32()}, None),
        ({"id": pa.int64(), "in": pa.struct([("a", pa.int16())]), "tags": pa.map_(pa.string(), pa.int8())}, None),
        ({"name": pa.string()}, "column is 'id' missing"),
        ({"id": pa.int64(), "nam": pa.string()}, "column is 'nam': the fields of values are id, price"),
        ({"id": pa.string()}, r"column id is of type string: it must be integer \(int64\)"),
        ({"id": pa.int64(), "in": pa.struct([("b", pa.int64())])}, "column is 'in.b': the fields of values are a"),
        ({"id": pa.int64(), "in": pa.struct([])}, "column is 'in.a' missing"),
        ({"id": pa.int64(), "grid": pa.list_(pa.list_(pa.string()))}, r"column grid\[\]\[\] is of type string"),
        ({"id": pa.int64(), "tags": pa.map_(pa.int64(), pa.int64())}, "column tags is of type map<int64, int64>"),
        ({"id": pa.int64(), "tags": pa.map_(pa.string(), pa.bool_())}, "column tags{} is of type bool"),
    ],
)
def test_columns_are_checked(columns: dict[str, pa.DataType], told: str | None) -> None:
    writer = ValueWriter(parse_value_schema(json.dumps(SCHEMA)))
    if told is None:
        writer.check(pa.schema(list(columns.items())))
        return
    with pytest.raises(InvalidInput, match=told):
        writer.check(pa.schema(list(columns.items())))


@pytest.mark.parametrize(("given", "fits"), [((6, 2), True), ((5, 2), True), ((7, 2), False), ((6, 3), False)])
def test_decimals_fit_if_no_digit_is_lost(given: tuple[int, int], fits: bool) -> None:
    columns = pa.schema([("id", pa.int64()), ("price", pa.decimal128(*given))])
    writer = ValueWriter(parse_value_schema(AVRO))
    if fits:
        writer.check(columns)
    else:
        with pytest.raises(InvalidInput, match="column price is of type decimal"):
            writer.check(columns)

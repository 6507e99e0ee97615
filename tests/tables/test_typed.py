"""Columns of values of topics with a schema: the same rows whether they are in the archive, or how long."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import fastavro
import polars as pl
import pytest

from headrace.core.errors import InvalidInput
from headrace.tables.iceberg import open_catalog, sync_iceberg
from headrace.tables.sql import run_sql
from tests.core.values.test_growth import record
from tests.tables.archives import ArchiveSite

SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "half": {"type": "number"}}}
GROWN = SCHEMA | {"properties": {**SCHEMA["properties"], "note": {"type": "string"}}}  # type: ignore[dict-item]
VALUES = [b'{"id": 1, "half": 0.5, "note": "x"}', b'{"id": "1"}', b"\xff", b"", b'{"id": 2}']


def rows_of(site: ArchiveSite, topic: str, columns: str = "id, half, value_error") -> list[dict[str, Any]]:
    query = f'SELECT {columns} FROM "{topic}" ORDER BY partition, "offset"'
    rows: list[dict[str, Any]] = run_sql(site.client, query).to_pylist()
    return rows


def test_rows_are_the_same_before_and_after_they_are_archived(site: ArchiveSite, topic: str) -> None:
    site.create(topic, 1, value_schema=SCHEMA)
    site.publish(topic, VALUES)
    site.publish(topic, [b'{"id": 3}', b"{}"], codec="zstd")
    tail = rows_of(site, topic, "*")
    site.archive(topic)
    assert rows_of(site, topic, "*") == tail
    assert [row["id"] for row in tail] == [1, None, None, None, 2, 3, None]
    assert [row["value"] for row in tail] == [*VALUES, b'{"id": 3}', b"{}"]
    assert [row["value_error"] for row in tail if row["value_error"]] == [
        "the field id: expected integer, got string", "the value is not valid UTF-8",
        "the value is not JSON: input data was truncated", "the field id is missing",
    ]  # fmt: skip


def test_files_of_earlier_schemas_are_parsed_when_they_are_read(site: ArchiveSite, topic: str) -> None:
    site.create(topic, 1)
    for schema in (None, SCHEMA, GROWN):
        site.client.alter_topic(topic, value_schema=schema)
        site.publish(topic, VALUES[:1])
        site.publish(topic, VALUES[:1], codec="gzip")
        site.archive(topic)
    site.publish(topic, VALUES[:1])
    rows = rows_of(site, topic, "id, half, note, value_error")
    assert rows == [{"id": 1, "half": 0.5, "note": "x", "value_error": None}] * 7
    filtered = run_sql(site.client, f"SELECT count(*) AS found FROM \"{topic}\" WHERE id = 1 AND note = 'x'")
    assert filtered.to_pylist() == [{"found": 7}]


def test_a_schema_of_the_query_wins(site: ArchiveSite, topic: str) -> None:
    site.create(topic, 1, value_schema=SCHEMA)
    site.publish(topic, VALUES[:1])
    site.archive(topic)
    given = {"type": "object", "properties": {"note": {"type": "string"}}}
    rows = run_sql(site.client, f'SELECT * FROM "{topic}"', given)
    assert rows.column_names[-2:] == ["note", "value_error"]
    assert rows["note"].to_pylist() == ["x"]


def test_avro(site: ArchiveSite, topic: str) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    schema = {"type": "record", "name": "order", "fields": fields}
    grown = schema | {"fields": [*fields, {"name": "more", "type": ["null", "long"]}]}

    def value(of: dict[str, Any], **row: Any) -> bytes:
        target = BytesIO()
        fastavro.schemaless_writer(target, fastavro.parse_schema(of), row)
        return target.getvalue()

    site.create(topic, 1, value_schema=json.dumps(schema))
    site.publish(topic, [value(schema, id=1, name="a"), b"\x02"])
    site.archive(topic)
    site.client.alter_topic(topic, value_schema=grown)
    site.publish(topic, [value(schema, id=2, name="b"), value(grown, id=3, name="c", more=5)])
    rows = rows_of(site, topic, "id, name, more")
    assert [tuple(row.values()) for row in rows] == [(1, "a", None), (None, None, None), (2, "b", None), (3, "c", 5)]
    site.archive(topic)
    assert rows_of(site, topic, "id, name, more") == rows


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
EVERY_TYPE = record(
    ("id", "long"),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}),
    ("small", ["null", {"type": "fixed", "name": "small", "size": 4, "logicalType": "decimal", "precision": 9}]),
    ("tags", {"type": "map", "values": "long"}),
    ("prices", {"type": "map", "values": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 5}]}),
    ("days", {"type": "array", "items": {"type": "int", "logicalType": "date"}}),
    ("time", {"type": "int", "logicalType": "time-millis"}),
    ("at", MICROS),
    ("there", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("hash", {"type": "fixed", "name": "hash", "size": 2}),
    ("uid", {"type": "fixed", "name": "uid", "size": 16, "logicalType": "uuid"}),
    ("in", record(("maps", {"type": "array", "items": {"type": "map", "values": MICROS}})) | {"name": "inner"}),
) | {"framing": "registry"}
UID = "12345678-9abc-def0-1234-56789abcdef0"
EVERY_VALUE = {
    "id": 1, "price": Decimal("-12345678901234567.125"), "small": Decimal(7), "tags": {"a": 1, "b": -2},
    "prices": {"x": None, "y": Decimal(99999)}, "days": [date(2026, 1, 2)], "time": 3_600_000_000,
    "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "there": datetime(2026, 1, 2, 3, 4, 5), "hash": b"\x01\x02",
    "uid": UID, "in": {"maps": [{"k": datetime(2026, 1, 1, tzinfo=UTC)}, {}]},
}  # fmt: skip


def every_value() -> bytes:
    """A value with each type, as a client with a schema registry writes it."""
    target = BytesIO()
    stored = EVERY_VALUE | {"time": time(1), "uid": UUID(UID).bytes}
    schema = fastavro.parse_schema({"type": "record", "name": "order", "fields": EVERY_TYPE["fields"]})
    fastavro.schemaless_writer(target, schema, stored)
    return b"\0\0\0\0\x07" + target.getvalue()


def test_every_type_is_the_same_in_every_reader(
    site: ArchiveSite, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site.create(topic, 1, value_schema=EVERY_TYPE)
    site.publish(topic, [every_value(), b"\0\0\0\0\x07", b"x"])
    names = [*EVERY_VALUE, "value_error"]
    columns = ", ".join(f'"{name}"' for name in names)
    query = f'SELECT {columns} FROM "{topic}" ORDER BY "offset"'
    tail = run_sql(site.client, query)
    told = ["the value is not a record of the schema", "the value does not begin with the header of a schema registry"]
    expected = [EVERY_VALUE | {"value_error": None}, *({**dict.fromkeys(names), "value_error": each} for each in told)]
    assert tail.to_pylist(maps_as_pydicts="strict") == expected
    # Files without the columns are parsed when they are read.
    site.client.alter_topic(topic, value_schema=None)
    site.archive(topic)
    assert run_sql(site.client, query, EVERY_TYPE) == tail
    site.client.alter_topic(topic, value_schema=EVERY_TYPE)
    site.publish(topic, [every_value()])
    site.archive(topic)
    archived = run_sql(site.client, query)
    assert archived.schema == tail.schema and archived.slice(0, 3) == tail
    assert archived.slice(3).to_pylist() == archived.slice(0, 1).to_pylist()
    where = "price < 0 AND \"in\".maps[1]['k'] IS NOT NULL"
    assert run_sql(site.client, f'SELECT id FROM "{topic}" WHERE {where}').num_rows == 2
    catalog = open_catalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    sync_iceberg(site.client, topic, catalog)
    assert "statistics missing" not in caplog.text
    table = catalog.load_table(("headrace", topic))
    iceberg = table.scan().to_arrow().sort_by("offset").select(names)
    assert iceberg.slice(3).to_pylist() == archived.slice(3).to_pylist()
    assert all(iceberg[name].null_count == 3 for name in EVERY_VALUE), "of files before the schema columns are null"
    assert {field.name: str(field.field_type) for field in table.schema().fields}["price"] == "decimal(20, 3)"
    assert table.scan(row_filter="price > 0").to_arrow().num_rows == 0
    files = (Path(urlsplit(task.file.file_path).path) for task in table.scan().plan_files())
    polars = next(rows for rows in map(pl.read_parquet, files) if "price" in rows.columns)
    assert polars.select(names).to_dicts() == archived.slice(3).to_pylist(maps_as_pydicts="strict")


def test_iceberg_tables_grow_with_the_schema(site: ArchiveSite, topic: str, tmp_path: Path) -> None:
    catalog = open_catalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    site.create(topic, 1)
    nested = {"at": {"type": "string", "format": "date-time"}, "tags": {"type": "array", "items": {"type": "string"}}}
    properties = {**GROWN["properties"], "in": {"type": "object", "properties": nested}}  # type: ignore[dict-item]
    for schema in (None, SCHEMA, GROWN | {"properties": properties}):
        site.client.alter_topic(topic, value_schema=schema)
        site.publish(topic, [b'{"id": 1, "note": "x", "in": {"at": "2026-01-01T00:00:00Z", "tags": ["a"]}}'])
        site.archive(topic)
        sync_iceberg(site.client, topic, catalog)
    rows = catalog.load_table(("headrace", topic)).scan().to_arrow().sort_by("offset")
    assert rows["id"].to_pylist() == [None, 1, 1], "of files before the schema columns are null"
    assert rows["note"].to_pylist() == [None, None, "x"]
    assert rows["in"].to_pylist()[1:] == [None, {"at": datetime(2026, 1, 1, tzinfo=UTC), "tags": ["a"]}]
    assert rows["value_error"].null_count == 3
    filtered = catalog.load_table(("headrace", topic)).scan(row_filter="id > 100")
    assert len(list(filtered.plan_files())) == 1, "only the file without statistics of it"
    site.client.alter_topic(topic, value_schema=None)
    site.publish(topic, VALUES[:1])
    site.archive(topic)
    assert sync_iceberg(site.client, topic, catalog).files == 1, "merged, without columns of values"
    assert catalog.load_table(("headrace", topic)).scan().to_arrow()["id"].null_count == 4
    site.client.alter_topic(topic, value_schema={"type": "object", "properties": {"id": {"type": "string"}}})
    with pytest.raises(InvalidInput, match="drop the table"):
        sync_iceberg(site.client, topic, catalog)


def test_the_first_sync_of_a_topic_whose_schema_has_grown(site: ArchiveSite, topic: str, tmp_path: Path) -> None:
    catalog = open_catalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    site.create(topic, 1)
    for schema in (SCHEMA, GROWN):
        site.client.alter_topic(topic, value_schema=schema)
        site.publish(topic, [b'{"id": 1, "note": "x"}'])
        site.archive(topic)
    assert sync_iceberg(site.client, topic, catalog).files == 2
    rows = catalog.load_table(("headrace", topic)).scan().to_arrow().sort_by("offset")
    assert (rows["id"].to_pylist(), rows["note"].to_pylist()) == ([1, 1], [None, "x"])
    table = catalog.load_table(("headrace", topic))
    assert sync_iceberg(site.client, topic, catalog).added == 0
    assert catalog.load_table(("headrace", topic)).metadata == table.metadata, "nothing is committed"

"""Columns of values of topics with a schema: the same rows whether they are in the archive, or how long."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from headrace.core.errors import InvalidInput
from headrace.tables.iceberg import open_catalog, sync_iceberg
from headrace.tables.sql import run_sql
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

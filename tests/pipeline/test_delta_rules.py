"""Tables whose rules files that are simply added would break: refused before the first batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.definition.description import TableSink
from headrace.spark.pipeline.sinks.delta_rules import check_writable
from headrace.spark.pipeline.sinks.table_sink import DeltaSinkWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}


def table_of(
    directory: Path,
    settings: dict[str, str] | None = None,
    rules: dict[str, str] | None = None,
    is_nullable: bool = True,
    is_mapped: bool = False,
    divided_by: tuple[str, ...] = (),
) -> Any:
    """A table of two columns as another writer made it."""
    columns: list[dict[str, Any]] = [
        {"name": "id", "type": "long", "nullable": is_nullable, "metadata": rules or {}},
        {"name": "place", "type": "string", "nullable": True, "metadata": {}},
    ]
    for number, column in enumerate(columns if is_mapped else []):
        column["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
    described = {
        "id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": divided_by,
        "schemaString": json.dumps({"type": "struct", "fields": columns}), "configuration": settings or {},
    }  # fmt: skip
    entry = [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": described}]
    (directory / "_delta_log").mkdir()
    (directory / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, entry)))
    return DeltaTable(str(directory))


@pytest.mark.parametrize(
    ("made", "field", "reason"),
    [
        ({"divided_by": ["place"]}, "sink.partition_by", "divided by place"),
        ({"settings": {"delta.constraints.positive": "id > 0"}}, "sink.path", "the constraint delta.constraints"),
        ({"settings": MAPPED, "is_mapped": True}, "sink.path", "delta.columnMapping.mode"),
        ({"rules": {"delta.generationExpression": "1"}}, "sink.path", "a generated column, id"),
        ({"rules": {"delta.invariants": "{}"}}, "sink.path", "an invariant, id"),
    ],
)
def test_what_added_files_would_break(tmp_path: Path, made: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as refused:
        check_writable(table_of(tmp_path, **made), str(tmp_path), "sink", [])
    assert refused.value.field == field


def test_files_that_are_divided_otherwise(tmp_path: Path) -> None:
    """Their values would be read as NULL."""
    with pytest.raises(InvalidInput, match="divided by no column"):
        check_writable(table_of(tmp_path), str(tmp_path), "sink", ["place"])


def test_other_tables(tmp_path: Path) -> None:
    settings = {"delta.appendOnly": "true", "delta.columnMapping.mode": "none"}
    check_writable(table_of(tmp_path, settings, divided_by=("place", "id")), str(tmp_path), "sink", ["id", "place"])


def test_a_column_that_must_not_be_null(spark: SparkSession, tmp_path: Path) -> None:
    """A batch with NULL in it fails as a whole; others are written."""
    table_of(tmp_path, is_nullable=False)
    writer = DeltaSinkWriter(TableSink(format="delta", path=str(tmp_path)), "writer", is_stream=False)
    rows = spark.sql("SELECT 7L AS id, 'a' AS place UNION ALL SELECT NULL, 'b'")
    writer.open()
    writer.write(writer.prepare(rows.where("place = 'a'")), None)
    with pytest.raises(PySparkException, match="a row has NULL in id"):
        writer.write(writer.prepare(rows), None)
    writer.close()
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist() == [{"id": 7, "place": "a"}]

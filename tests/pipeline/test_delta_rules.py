"""Tables whose rules files that are simply added would break: refused before the first batch. Columns and bounds."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.definition.description import TableSink
from headrace.spark.pipeline.frame.delta_statistics import statistics_of
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


def test_a_new_column_is_added_and_a_missing_one_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = TableSink(format="delta", path=str(tmp_path))
    for rows in ("SELECT 1L AS id, 'a' AS place", "SELECT 2L AS id, 'b' AS place, DATE'2026-07-01' AS day"):
        writer = DeltaSinkWriter(sink, "writer", is_stream=False)
        writer.open()
        writer.write(writer.prepare(spark.sql(rows)), None)
        writer.close()
    assert sorted(DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist(), key=str) == [
        {"id": 1, "place": "a", "day": None},
        {"id": 2, "place": "b", "day": date(2026, 7, 1)},
    ]
    day = "DATE'2026-07-01' AS day"
    for columns in ("3L AS id, 'c' AS place", "3L AS id, 'c' AS place, 1 AS day", f"3L AS ID, 'c' AS place, {day}"):
        with pytest.raises(InvalidInput, match="the table has"):
            DeltaSinkWriter(sink, "writer", is_stream=False).prepare(spark.sql(f"SELECT {columns}"))


def test_the_log_has_the_bounds_of_each_file(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT id, if(id = 2, NULL, repeat('x', 40)) AS long, id * 0.5D AS half FROM range(1, 4)")
    writer = DeltaSinkWriter(TableSink(format="delta", path=str(tmp_path)), "writer", is_stream=False)
    writer.open()
    writer.write(writer.prepare(rows.coalesce(1)), None)
    writer.close()
    table = DeltaTable(str(tmp_path))
    (told,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (told["num_records"], told["min.id"], told["max.id"]) == (3, 1, 3)
    assert (told["min.long"], told["max.long"], told["null_count.long"]) == ("x" * 32, None, 1)
    assert told.get("max.half") is None, "NaN may be among them"
    found = [table.to_pyarrow_table(filters=[("id", ">", least)]).num_rows for least in (2, 3)]
    assert found == [1, 0]


def test_statistics_say_only_what_is_sure(tmp_path: Path) -> None:
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    table = pa.table(
        {
            "number": pa.array([None, None, 7, -1], pa.int64()),
            "at": pa.array([noon] * 4, pa.timestamp("us", tz="UTC")),
            "there": pa.array([noon.replace(tzinfo=None)] * 4, pa.timestamp("us")),
            "day": [date(2026, 7, 1)] * 4,
            "is": [True] * 4,
            "raw": [b"a"] * 4,
            "in": [{"a": 1}] * 4,
            "a.b": [1] * 4,
        }
    )
    # A row group without any value has no bounds.
    pq.write_table(table, tmp_path / "file", row_group_size=2)
    told = json.loads(statistics_of(pq.read_metadata(tmp_path / "file")))
    moments = {"at": "2026-07-01T12:00:00.000000Z", "there": "2026-07-01T12:00:00.000000", "day": "2026-07-01"}
    assert told["minValues"] == {"number": -1, **moments}
    assert told["maxValues"] == {"number": 7, **moments}
    assert told["nullCount"] == {"number": 2, "at": 0, "there": 0, "day": 0, "is": 0, "raw": 0}
    pq.write_table(table, tmp_path / "file", write_statistics=False)
    told = json.loads(statistics_of(pq.read_metadata(tmp_path / "file")))
    assert told == {"numRecords": 4, "minValues": {}, "maxValues": {}, "nullCount": {}}

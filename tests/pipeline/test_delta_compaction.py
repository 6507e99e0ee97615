"""Small files of a Delta table become larger ones, and not a row more or less, whatever others do meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import fs

from headrace.spark.pipeline.sinks.delta_compaction import merge_small_files

MANY = 1 << 30
COLUMNS = pa.schema(
    {
        "id": pa.int64(),
        "place": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "in": pa.struct({"x": pa.list_(pa.int64())}),
    }
)
MOMENT = datetime(2026, 7, 1, 12, 0, 0, 123456, UTC)


def add(table: Path, *ids: int, divided_by: list[str] | None = None) -> None:
    rows = [
        {
            "id": each,
            "place": "a b/ü%=" if each % 2 else None,
            "day": date(2026, 7, 1),
            "at": MOMENT,
            "in": {"x": [each]},
        }
        for each in ids
    ]
    write_deltalake(str(table), pa.Table.from_pylist(rows, COLUMNS), mode="append", partition_by=divided_by)


def merged(table: DeltaTable, files_min: int, bytes_max: int, codec: str) -> bool:
    files = fs.SubTreeFileSystem(table.table_uri.removeprefix("file://"), fs.LocalFileSystem())
    return merge_small_files(table, files, files_min, bytes_max, codec)


def rows_of(table: Path) -> list[dict[str, Any]]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("divided_by", [None, ["place", "day"]])
def test_rows_and_directories_stay(tmp_path: Path, divided_by: list[str] | None) -> None:
    for first in (0, 2, 4):
        add(tmp_path, first, first + 1, divided_by=divided_by)
    before = rows_of(tmp_path)
    assert not merged(DeltaTable(str(tmp_path)), 4, MANY, "ZSTD")
    assert merged(DeltaTable(str(tmp_path)), 3, MANY, "ZSTD")
    files = [Path(file) for file in DeltaTable(str(tmp_path)).file_uris()]
    assert len(files) == (2 if divided_by else 1)
    assert {pq.ParquetFile(file).metadata.row_group(0).column(0).compression for file in files} == {"ZSTD"}
    assert rows_of(tmp_path) == before
    DeltaTable(str(tmp_path)).create_checkpoint()
    assert rows_of(tmp_path) == before


def test_files_of_about_a_size(tmp_path: Path) -> None:
    """Large files stay as they are; without two small ones nothing is merged."""
    for number in range(5):
        add(tmp_path, number)
    size = max(Path(file).stat().st_size for file in DeltaTable(str(tmp_path)).file_uris())
    assert not merged(DeltaTable(str(tmp_path)), 2, size // 2, "NONE")
    assert not merged(DeltaTable(str(tmp_path)), 2, size + 1, "NONE"), "two are too large together"
    assert merged(DeltaTable(str(tmp_path)), 2, 2 * size, "UNCOMPRESSED")
    assert len(DeltaTable(str(tmp_path)).file_uris()) == 3
    assert [row["id"] for row in rows_of(tmp_path)] == [*range(5)]


@pytest.mark.parametrize(
    ("meanwhile", "expected"),
    [
        (lambda table: merged(DeltaTable(str(table)), 2, MANY, "SNAPPY"), [0, 1, 2]),
        (lambda table: DeltaTable(str(table)).optimize.compact(), [0, 1, 2]),
        (lambda table: DeltaTable(str(table)).delete("id = 1"), [0, 2]),
        (lambda table: add(table, 3), [0, 1, 2, 3]),
    ],
)
def test_another_writer_in_between(tmp_path: Path, meanwhile: Callable[[Path], object], expected: list[int]) -> None:
    """What was read before that is not merged any more; the next time it is."""
    for number in range(3):
        add(tmp_path, number)
    before = DeltaTable(str(tmp_path))
    meanwhile(tmp_path)
    assert not merged(before, 2, MANY, "SNAPPY")
    assert [row["id"] for row in rows_of(tmp_path)] == expected
    add(tmp_path, 9)
    assert merged(DeltaTable(str(tmp_path)), 2, MANY, "SNAPPY")
    assert [row["id"] for row in rows_of(tmp_path)] == [*expected, 9]

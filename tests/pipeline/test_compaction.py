"""Small Parquet files become larger ones: only our own, with their codec, and not a row more or less."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.spark.pipeline.sinks.compaction import compact
from headrace.spark.pipeline.sinks.file_commit import CommitManifest, FileCommit

MANY = 1 << 30


def nothing(manifest: CommitManifest) -> None:
    pass


def landed(table: Path) -> FileCommit:
    landing = FileCommit(table, "w")
    landing.open(nothing, lambda manifest: True)
    return landing


def put(landing: FileCommit, number: int, rows: pa.Table, folder: str = "", codec: str = "zstd") -> Path:
    stage = landing.new_stage()
    (stage / folder).mkdir(parents=True)
    pq.write_table(rows, stage / folder / f"part-0.{codec}.parquet", compression=codec)
    return landing.land(stage, number, nothing)[0]


def table_of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"row {each}" for each in ids]})


def ids(folder: Path) -> list[int]:
    return sorted(each for file in folder.glob("*.parquet") for each in pq.read_table(file)["id"].to_pylist())


def test_files_are_merged_with_their_codec(tmp_path: Path) -> None:
    landing = landed(tmp_path)
    for number in range(3):
        put(landing, number, table_of(number, number + 10))
    assert compact(landing, [tmp_path], 3, MANY) == 3
    (file,) = tmp_path.glob("*.parquet")
    assert file.name == "part-w-0000000000-00000-to-0000000002-00000.zstd.parquet"
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "ZSTD"
    assert ids(tmp_path) == [0, 1, 2, 10, 11, 12]
    assert landing.last == 2

    put(landing, 3, table_of(3))
    assert compact(landing, [tmp_path], 2, MANY) == 2
    (file,) = tmp_path.glob("*.parquet")
    assert file.name == "part-w-0000000000-00000-to-0000000003-00000.zstd.parquet"
    assert ids(tmp_path) == [0, 1, 2, 3, 10, 11, 12]


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    landing = landed(tmp_path)
    pq.write_table(table_of(7), tmp_path / "part-other-1.parquet")
    put(landing, 0, table_of(0))
    assert compact(landing, [tmp_path], 2, MANY) == 0
    put(landing, 1, table_of(1))
    assert compact(landing, [tmp_path], 2, MANY) == 2
    assert (tmp_path / "part-other-1.parquet").exists() and ids(tmp_path) == [0, 1, 7]


def test_too_few_files_and_large_files_stay(tmp_path: Path) -> None:
    landing = landed(tmp_path)
    large = put(landing, 0, table_of(*range(5000)), codec="none")
    put(landing, 1, table_of(1))
    assert compact(landing, [tmp_path], 2, large.stat().st_size) == 0
    put(landing, 2, table_of(2))
    assert compact(landing, [tmp_path], 2, large.stat().st_size) == 2
    assert large.exists()


def test_a_merged_file_is_no_larger_than_asked(tmp_path: Path) -> None:
    landing = landed(tmp_path)
    files = [put(landing, number, table_of(number)) for number in range(5)]
    size = max(file.stat().st_size for file in files)
    assert compact(landing, [tmp_path], 2, 2 * size) == 4
    assert len(list(tmp_path.glob("*.parquet"))) == 3 and ids(tmp_path) == [0, 1, 2, 3, 4]


def test_other_columns_and_other_codecs_are_not_mixed(tmp_path: Path) -> None:
    landing = landed(tmp_path)
    put(landing, 0, table_of(0))
    put(landing, 1, table_of(1))
    put(landing, 2, pa.table({"id": [2]}))
    put(landing, 3, pa.table({"id": [3]}), codec="snappy")
    assert compact(landing, [tmp_path], 2, MANY) == 2
    assert len(list(tmp_path.glob("*.parquet"))) == 3 and ids(tmp_path) == [0, 1, 2, 3]


def test_folders_are_merged_one_by_one(tmp_path: Path) -> None:
    landing = landed(tmp_path)
    for number in range(4):
        put(landing, number, table_of(number), f"day={number % 2}")
    assert compact(landing, [tmp_path / "day=0", tmp_path / "day=0"], 2, MANY) == 2
    assert len(list((tmp_path / "day=0").iterdir())) == 1 and len(list((tmp_path / "day=1").iterdir())) == 2

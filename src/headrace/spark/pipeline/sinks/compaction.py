"""Small Parquet files made into larger ones, row groups as they are read, with the codec they have.

Only files that this writer put there are touched. A merged file is written into the state's directory first; one
manifest then moves it into the table and removes what it is made of, so that a kill never loses or doubles a row for
good. Readers that list the table in that moment may see both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq

from headrace.spark.pipeline.sinks.file_commit import CommitManifest, FileCommit


def compact(landing: FileCommit, folders: Iterable[Path], files_min: int, bytes_max: int) -> int:
    """Merge where there are enough small files; how many files were merged."""
    merged = 0
    for folder in sorted(set(folders)):
        for files in _batches(landing, folder, files_min, bytes_max):
            _merge(landing, files)
            merged += len(files)
    return merged


def _batches(landing: FileCommit, folder: Path, files_min: int, bytes_max: int) -> Iterator[list[Path]]:
    """Small files of one schema and codec, as many together as make a file of the size wanted."""
    sized = [(file, file.stat().st_size) for file in sorted(folder.glob(f"{landing.prefix}*.parquet"))]
    small = [(file, size) for file, size in sized if size < bytes_max]
    if len(small) < files_min:
        return
    for _, alike in groupby(small, key=lambda each: _kind(each[0])):
        chosen: list[Path] = []
        total = 0
        for file, size in alike:
            if chosen and total + size > bytes_max:
                yield from [chosen] if len(chosen) > 1 else []
                chosen, total = [], 0
            chosen.append(file)
            total += size
        if len(chosen) > 1:
            yield chosen


def _kind(file: Path) -> tuple[str, str]:
    with pq.ParquetFile(file) as opened:
        return str(opened.schema_arrow.remove_metadata()), _codec(opened)


def _codec(opened: pq.ParquetFile) -> str:
    if not opened.metadata.num_row_groups or not opened.metadata.num_columns:
        return "SNAPPY"
    return str(opened.metadata.row_group(0).column(0).compression)


def _merge(landing: FileCommit, files: list[Path]) -> None:
    stage = landing.new_stage()
    stage.mkdir()
    first, last = (file.name.removeprefix(landing.prefix).split(".")[0] for file in (files[0], files[-1]))
    suffix = files[0].name.removeprefix(landing.prefix + first)
    made = stage / f"{landing.prefix}{first.split('-to-')[0]}-to-{last.split('-to-')[-1]}{suffix}"
    with pq.ParquetFile(files[0]) as opened:
        schema, codec = opened.schema_arrow, _codec(opened)
    with pq.ParquetWriter(made, schema, compression="NONE" if codec == "UNCOMPRESSED" else codec) as writer:
        for file in files:
            with pq.ParquetFile(file) as opened:
                for group in range(opened.num_row_groups):
                    writer.write_table(opened.read_row_group(group).cast(schema))
    folder = files[0].parent.relative_to(landing.table)
    moves = [(landing.relative(made), str(folder / made.name))]
    removals = [str(file.relative_to(landing.table)) for file in files]
    landing.replace(CommitManifest(landing.last, moves, removals, landing.fingerprint), lambda manifest: None)
    stage.rmdir()

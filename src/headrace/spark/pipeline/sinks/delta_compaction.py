"""Small files of a Delta table become larger ones, and not a row more or less, whoever else writes to the table.

    small files of a directory ──► one new file, in no version yet ──► one entry of the log: removes them, adds it

`deltalake` has an operation for this, but two of them at the same time both succeed, and the table has each row twice:
it does not notice that another entry has removed the same files, with the same rows, in between. So the entry written
here counts only if no other was written since the table was read. Otherwise the new files are strays (they are not
deleted: if the answer of a store was lost, the log has them), and small files are merged after a later batch.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from headrace.spark.pipeline.frame.delta_statistics import statistics_of

_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_GROUP_BYTES: Final = 64 << 20


class _File(NamedTuple):
    """A file of the table."""

    rows: ds.Fragment
    bytes: int


def merge_small_files(table: Any, files: fs.FileSystem, files_min: int, bytes_max: int, codec: str) -> bool:
    """Merge files of less than these bytes if a directory has enough of them; whether a new version has them merged.

    files: the directory of the table. It is Arrow's: that of `deltalake` would hold up all threads of this process.
    """
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    dataset = table.to_pyarrow_dataset(filesystem=files)
    folders = _small_files(table, dataset, bytes_max)
    if max(map(len, folders.values()), default=0) < files_min:
        return False
    divided_by = table.metadata().partition_columns
    actions: list[Any] = []
    for folder, small in folders.items():
        # Files of other writers may be anywhere: their values are not in the names of directories then.
        if [name.split("=")[0] for name in folder.split("/") if name] == divided_by:
            for group in _groups(small, bytes_max):
                actions += _merged(dataset, folder, group, divided_by, codec) if len(group) > 1 else ()
    if not actions:
        return False
    try:
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            partition_by=divided_by,
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except CommitFailedError:
        return False
    return True


def values_of(place: str) -> dict[str, str | None]:
    """The values of partition columns, which are in the names of directories."""
    pairs = [folder.split("=", 1) for folder in place.split("/")[:-1]]
    return {unquote(name): None if value == _NO_VALUE else unquote(value) for name, value in pairs}


def _small_files(table: Any, dataset: ds.FileSystemDataset, bytes_max: int) -> dict[str, list[_File]]:
    """By directory."""
    listed = pa.table(table.get_add_actions())
    # The log has paths as parts of a URL.
    sizes = dict(zip(map(unquote, listed["path"].to_pylist()), listed["size_bytes"].to_pylist(), strict=True))
    found = defaultdict(list)
    for fragment in dataset.get_fragments():
        if sizes[fragment.path] < bytes_max:
            found[fragment.path.rpartition("/")[0]].append(_File(fragment, sizes[fragment.path]))
    return found


def _groups(files: list[_File], bytes_max: int) -> Iterator[list[_File]]:
    """Several files each, of these bytes together at most."""
    group: list[_File] = []
    for file in files:
        if sum(each.bytes for each in group) + file.bytes > bytes_max:
            yield group
            group = []
        group.append(file)
    yield group


def _merged(
    dataset: ds.FileSystemDataset, folder: str, files: list[_File], divided_by: list[str], codec: str
) -> Iterator[Any]:
    """What an entry says that has one new file in place of these."""
    from deltalake.transaction import AddAction, RemoveAction

    place = f"{folder}/merged-{uuid.uuid4().hex}.parquet".lstrip("/")
    values, now = values_of(place), int(time.time() * 1000)
    rows = ds.FileSystemDataset([each.rows for each in files], dataset.schema, dataset.format, dataset.filesystem)
    reader = rows.scanner(columns=[name for name in dataset.schema.names if name not in divided_by]).to_reader()
    footers: list[pq.FileMetaData] = []
    with (
        dataset.filesystem.open_output_stream(place) as out,
        pq.ParquetWriter(
            out, reader.schema, compression="NONE" if codec == "UNCOMPRESSED" else codec, metadata_collector=footers
        ) as writer,
    ):
        for part in _row_groups(reader):
            writer.write_table(part)
    for file in files:
        yield RemoveAction(file.rows.path, False, now, file.bytes, values)
    size = dataset.filesystem.get_file_info(place).size
    yield AddAction(place, size, values, now, False, statistics_of(footers[0]))


def _row_groups(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Rows of several batches together: small files have small ones."""
    held: list[pa.RecordBatch] = []
    for batch in reader:
        held.append(batch)
        if sum(each.nbytes for each in held) >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    yield pa.Table.from_batches(held, reader.schema)

"""The files of an archive as a DataFrame, read by Arrow in Python tasks: where Spark has no file system for them.

    driver  files ─► one row per part of a file, each in a Spark partition of its own
    task    row ─► mapInArrow ─► row groups of the part ─► rows within the bounds, decoded ─► Arrow batches

So a table on an object store needs no package of Spark. Filters are applied to the rows after that: they do not reach
the statistics of the files, as they do with Spark's own reader. Credentials come from the environment of the executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.spark.options import ReadOptions
from headrace.spark.reader.batch_reader import split_reader
from headrace.spark.reader.split_reader import SplitReader
from headrace.spark.reader.tables.typed_rows import TypedRows
from headrace.spark.schema import READ_COLUMNS, read_schema
from headrace.tables.files import open_archive, unreadable
from headrace.tables.snapshot import Bounds, TableSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What a decoder needs to know of a message.
DECODED_BY: Final = ("value", "codec", "partition", "offset")
_PART_BYTES: Final = 32 << 20
_BATCH_ROWS: Final = 1 << 16


class _Part(NamedTuple):
    """Some of the row groups of a file: those of one task."""

    path: str
    number: int
    parts: int


def archive_frame(
    spark: SparkSession, options: ReadOptions, snapshot: TableSnapshot, typed: TypedRows | None = None
) -> DataFrame:
    """The rows of the files of a table; columns of values are parsed."""
    schema = read_schema(options.columns if typed is None else typed.needed)
    counts = {file.path: 1 + file.bytes // _PART_BYTES for file in snapshot.files}
    parts = [_Part(path, number, count) for path, count in counts.items() for number in range(count)]
    task = _reading(split_reader(options, schema), snapshot.archive.topic, snapshot.url, parts, snapshot.clips)
    numbers = spark.range(0, len(parts), 1, len(parts))
    if typed is None:
        return numbers.mapInArrow(task, schema)
    return numbers.mapInArrow(lambda batches: typed.parse(task(batches)), typed.schema)


def _reading(
    reader: SplitReader, topic: str, url: str, parts: Sequence[_Part], clips: Bounds
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does: read the parts whose numbers it is given."""
    columns = stored_columns(reader.schema.names, with_places=bool(clips) or reader.decode)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy():
                found = _batches(url, parts[number], columns)
                yield from reader.decoded(topic, (_clipped(each, clips) for each in found))

    return read


def stored_columns(wanted: Sequence[str], with_places: bool) -> list[str]:
    """The columns of a file that are read for the columns of a table."""
    needed = {*wanted, *(DECODED_BY if with_places else ())}
    # A row of no columns has no length.
    return [name for name in READ_COLUMNS if name in needed and name != "topic"] or ["partition"]


def _batches(url: str, part: _Part, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    system, directory = open_archive(url)
    try:
        with system.open_input_file(f"{directory}/{part.path}") as opened:
            file = pq.ParquetFile(opened, page_checksum_verification=True)
            count = file.num_row_groups
            groups = range(part.number * count // part.parts, (part.number + 1) * count // part.parts)
            yield from file.iter_batches(_BATCH_ROWS, row_groups=list(groups), columns=list(columns), use_threads=False)
    except OSError as error:
        raise unreadable(url, part.path, error) from None


def _clipped(batch: pa.RecordBatch, clips: Bounds) -> pa.RecordBatch:
    """The rows within the bounds of their partitions; partitions without bounds are whole."""
    if not clips:
        return batch
    return batch.filter(pa.array(_is_within(batch, clips)))


def _is_within(batch: pa.RecordBatch, clips: Bounds) -> Any:
    size = max(clips) + 2
    starts, ends = np.zeros(size, np.int64), np.full(size, np.iinfo(np.int64).max)
    for partition, (start, end) in clips.items():
        starts[partition], ends[partition] = start, end
    # The last place is that of all partitions beyond.
    place = np.minimum(np.asarray(batch.column("partition")), size - 1)
    offset = np.asarray(batch.column("offset"))
    return (offset >= starts[place]) & (offset < ends[place])

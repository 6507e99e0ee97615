"""Merges small files of an archive into one, row by row in order, without holding them in memory.

All files are sorted, and everything in one was committed before everything in the next. So the merged order is: for
each partition, the rows of each file. The files are read at the same time, a few rows of each, and whole partitions
are taken from all of them at once; a stable sort by partition does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.core.archive.manifest import ArchiveFile, joined
from headrace.core.archive.plan import Span
from headrace.core.limits import ARCHIVE_GROUP_BYTES, ARCHIVE_GROUP_ROWS
from headrace.storage.archive.files import ArchiveFiles
from headrace.storage.archive.parquet import ParquetFile, grouped, write

# Rows of each file that are decoded at once, and about how many bytes they may have in the file.
_READ_ROWS: Final = 4096
_READ_BYTES: Final = 128 << 10
# How much larger than in the file the rows of one step may be in memory.
_EXPANSION: Final = 8


class _Cursor:
    """The rows of one file from a position on."""

    def __init__(self, files: ArchiveFiles, path: str, rows: int) -> None:
        self._batches: Iterator[pa.RecordBatch] = ParquetFile(files, path, _READ_BYTES).batches(rows)
        self._rows: pa.RecordBatch | None = None
        self._partitions: Any = None
        self._next()

    def _next(self) -> None:
        self._rows = next(self._batches, None)
        self._partitions = None if self._rows is None else np.asarray(self._rows.column("partition"))

    def take(self, partition: int) -> Iterator[pa.RecordBatch]:
        """All rows up to, and with, a partition."""
        while self._rows is not None:
            count = int(np.searchsorted(self._partitions, partition, side="right"))
            if count:
                yield self._rows.slice(0, count)
            if count < self._rows.num_rows:
                self._rows, self._partitions = self._rows.slice(count), self._partitions[count:]
                return
            self._next()


def merge(
    files: ArchiveFiles,
    path: str,
    sources: Sequence[ArchiveFile],
    resting: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    value_schema: str | None = None,
) -> ArchiveFile:
    """Write a file with the rows of consecutive files; it is complete and durable on return.

    `resting` passes on the row groups, and may wait between them.
    """
    ranges = joined(sources)
    spans = [Span(*each[:3], has_rows=each.rows > 0) for each in ranges]
    return write(files, path, resting(grouped(_rows(files, sources, spans))), spans, value_schema)


def _rows(files: ArchiveFiles, sources: Sequence[ArchiveFile], spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
    row_bytes = max(1, sum(source.bytes for source in sources) // max(1, sum(source.rows for source in sources)))
    rows = min(_READ_ROWS, max(1, _READ_BYTES // row_bytes))
    cursors = [_Cursor(files, source.path, rows) for source in sources]
    rows_max = min(ARCHIVE_GROUP_ROWS, max(1, ARCHIVE_GROUP_BYTES // _EXPANSION // row_bytes))
    for last, is_one in _steps(spans, rows_max):
        parts = (part for cursor in cursors for part in cursor.take(last))
        if is_one:
            # However large it is, its rows are in order as they come.
            yield from parts
            continue
        together = pa.concat_batches(list(parts))
        order = np.argsort(np.asarray(together.column("partition")), kind="stable")
        yield together.take(pa.array(order))


def _steps(spans: Sequence[Span], rows_max: int) -> Iterator[tuple[int, bool]]:
    """The last partition of each step, and whether it has only that one; a step of several fits into a row group."""
    sizes: dict[int, int] = {}
    for span in spans:
        if span.has_rows:
            sizes[span.partition] = sizes.get(span.partition, 0) + span.end_offset - span.first_offset
    step: list[int] = []
    rows = 0
    for partition, size in sizes.items():
        if step and rows + size > rows_max:
            yield step[-1], len(step) == 1
            step, rows = [], 0
        step.append(partition)
        rows += size
    if step:
        yield step[-1], len(step) == 1

"""Files of the archive as Parquet: rows sorted by partition and offset, in row groups of bounded size.

What is written is checked: offsets of a partition are dense, and those that were announced. Pages have checksums, which
readers verify. Works on whole columns; memory is bounded by a few row groups.

Of a topic with a schema, a file has columns of the values beside the raw ones, and names the schema in its footer. They
are made of the raw values whenever a file is written: a merged file has those of the newest schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.archive.manifest import ArchiveFile, ArchiveRange
from headrace.core.archive.plan import Span
from headrace.core.errors import Damaged
from headrace.core.limits import ARCHIVE_GROUP_BYTES, ARCHIVE_GROUP_ROWS
from headrace.core.messages import READ_SCHEMA
from headrace.core.values.columns import ValueParser, parser_of
from headrace.core.values.schema import FOOTER_KEY
from headrace.core.values.types import ERROR_COLUMN, DecimalOf, ObjectOf, ValueField
from headrace.storage.archive.files import ArchiveFiles, Sink

# As readers get messages, except that a file may have messages without a value.
SCHEMA: Final = READ_SCHEMA.set(READ_SCHEMA.get_field_index("value"), READ_SCHEMA.field("value").with_nullable(True))
# Repeated values are stored once. In other columns looking for repetitions costs more than it saves.
_REPEATED: Final = ["partition", "codec", "producer_id", "message_group_id"]
_RISING: Final = ["offset", "timestamp", "created_at", "seqno"]
_STATISTICS: Final = [name for name in SCHEMA.names if name not in ("value", "attributes")]
# Of the columns of values; errors are few.
_OFTEN_REPEATED: Final = ("string",)
_ERRORS: Final = [ERROR_COLUMN]
_COMPRESSION_LEVEL: Final = 1
# What Arrow says of a damaged page.
_DAMAGE_WORDS: Final = ("checksum", "CRC", "orrupt", "eserializ", "nexpected end", "not yield", "Invalid", "decompress")


class _Runs:
    """Runs of consecutive offsets of one partition, in the order of the rows that were written."""

    def __init__(self) -> None:
        self.ranges: list[ArchiveRange] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add sorted rows."""
        partition, offset = np.asarray(batch.column("partition")), np.asarray(batch.column("offset"))
        time_us = np.asarray(batch.column("timestamp").cast(pa.int64()))
        is_start = np.ones(len(offset), bool)
        is_start[1:] = (partition[1:] != partition[:-1]) | (offset[1:] != offset[:-1] + 1)
        starts = np.flatnonzero(is_start)
        ends = np.append(starts[1:], len(offset))
        columns = (partition[starts], offset[starts], offset[ends - 1] + 1, ends - starts, time_us[starts])
        for each in zip(*(column.tolist() for column in (*columns, time_us[ends - 1])), strict=True):
            self._append(ArchiveRange(*each))

    def _append(self, run: ArchiveRange) -> None:
        last = self.ranges[-1] if self.ranges else None
        if last is not None and (last.partition, last.end_offset) == (run.partition, run.first_offset):
            self.ranges[-1] = last._replace(end_offset=run.end_offset, rows=last.rows + run.rows, last_us=run.last_us)
        else:
            self.ranges.append(run)


def write(
    files: ArchiveFiles,
    path: str,
    groups: Iterable[pa.RecordBatch],
    spans: Sequence[Span],
    value_schema: str | None = None,
) -> ArchiveFile:
    """Write a file with these row groups, which have the rows of the spans; it is complete and durable on return."""
    runs = _Runs()
    parser = None if value_schema is None else parser_of(value_schema)
    with files.writing(path) as sink:
        try:
            _write(sink, groups, runs, parser)
            _check_spans(path, runs.ranges, spans)
        except BaseException:
            # The writer of Arrow would write a footer when it is freed.
            sink.discard()
            raise
    lost = [ArchiveRange(*span[:3], 0, 0, 0) for span in spans if not span.has_rows]
    times = [(run.first_us, run.last_us) for run in runs.ranges] or [(0, 0)]
    rows, ranges = sum(run.rows for run in runs.ranges), sorted([*runs.ranges, *lost])
    return ArchiveFile(path, rows, sink.bytes, sink.checksum, min(times)[0], max(last for _, last in times), ranges)


def _write(sink: Sink, groups: Iterable[pa.RecordBatch], runs: _Runs, parser: ValueParser | None) -> None:
    schema: pa.Schema = SCHEMA
    fields: Sequence[ValueField] = ()
    if parser is not None:
        schema, fields = pa.schema([*SCHEMA, *parser.columns]), parser.schema.fields
        schema = schema.with_metadata({FOOTER_KEY: parser.schema.text})
        groups = _typed(groups, parser, schema)
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=_COMPRESSION_LEVEL,
        use_dictionary=[*_REPEATED, *(field.column for field in fields if field.type in _OFTEN_REPEATED), *_ERRORS],
        column_encoding=dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"),
        write_statistics=[*_STATISTICS, *_scalars(fields), *_ERRORS],
        write_page_checksum=True,
    )
    for group in groups:
        runs.add(group)
        writer.write_batch(pa.RecordBatch.from_arrays(group.columns, schema=schema))
    writer.close()


def _typed(groups: Iterable[pa.RecordBatch], parser: ValueParser, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The row groups with the columns of their values; smaller ones where these are large."""
    for group in groups:
        parts: list[pa.RecordBatch] = []
        begin = rows = size = 0
        for part in parser.slices(group.column("value"), group.column("codec")):
            parts.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if size >= ARCHIVE_GROUP_BYTES or begin + rows == group.num_rows:
                # One part is not copied: it may be of one value whose columns are much larger than its JSON.
                typed = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
                columns = [*group.slice(begin, rows).columns, *typed.columns]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
                begin, parts, rows, size = begin + rows, [], 0, 0


def _scalars(fields: Iterable[ValueField], above: str = "") -> Iterator[str]:
    """The paths of columns, and of fields of objects, that have one value in a row."""
    for field in fields:
        path = f"{above}.{field.name}" if above else field.column
        if isinstance(field.type, ObjectOf):
            yield from _scalars(field.type.fields, path)
        elif isinstance(field.type, str | DecimalOf):
            yield path


def _check_spans(path: str, ranges: Sequence[ArchiveRange], spans: Sequence[Span]) -> None:
    found, expected = [run[:3] for run in ranges], [span[:3] for span in spans if span.has_rows]
    wrong = next((pair for pair in zip_longest(found, expected) if pair[0] != pair[1]), None)
    if wrong is not None:
        raise ValueError(f"{path}: read {wrong[0]} instead of {wrong[1]} (partition, first offset, end)")


def grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of the size of a row group."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        while batch.num_rows:
            part = batch.slice(0, ARCHIVE_GROUP_ROWS - rows)
            batch = batch.slice(part.num_rows)
            waiting.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if rows == ARCHIVE_GROUP_ROWS or size >= ARCHIVE_GROUP_BYTES:
                yield pa.concat_batches(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


class ParquetFile:
    """A file of the archive, open for reading. Thread-safe as far as one row group is read by one thread at a time."""

    def __init__(self, files: ArchiveFiles, path: str, buffer_bytes: int = 0) -> None:
        """With `buffer_bytes` a column is read this many bytes at a time, otherwise all of a row group at once."""
        self.path = path
        try:
            source = files.open(path)
            self._file = pq.ParquetFile(source, buffer_size=buffer_bytes, page_checksum_verification=True)
        except pa.ArrowInvalid as error:
            raise Damaged(path, 0, f"it is not a Parquet file: {error}") from error
        metadata = self._file.metadata
        rows = [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]
        # The first row of each row group, and the end.
        self.bounds = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)]).astype(np.int64)

    def group(self, place: int) -> pa.RecordBatch:
        """The rows of one row group, as readers get them."""
        return self._group(place, READ_SCHEMA.names)

    def _group(self, place: int, names: list[str]) -> pa.RecordBatch:
        try:
            table = self._file.read_row_group(place, columns=names, use_threads=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise Damaged(self.path, 0, f"row group {place} cannot be read: {error}") from error
        except OSError as error:
            # Arrow reports damage as an error of the operating system.
            if any(word in str(error) for word in _DAMAGE_WORDS):
                raise Damaged(self.path, 0, f"row group {place} cannot be read: {error}") from error
            raise
        columns: list[Any] = [table.column(name).combine_chunks() for name in names]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([READ_SCHEMA.field(name) for name in names]))

    def runs(self) -> Iterator[ArchiveRange]:
        """The offsets that it has, by row group, with the times of the first and last message of each run."""
        for place in range(len(self.bounds) - 1):
            runs = _Runs()
            runs.add(self._group(place, ["partition", "offset", "timestamp"]))
            yield from runs.ranges

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """All rows in order, some at a time."""
        for batch in self._file.iter_batches(rows, columns=READ_SCHEMA.names, use_threads=False):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=READ_SCHEMA)

"""A table of files as sink: Spark's tasks write files, `landing` puts them into the table, each batch once.

Delta: the same files, in a table whose log lists them. The entry of a batch carries the writer and the number of the
batch, so that it is added once, whatever is retried. It needs the package `deltalake`, and no Java of Delta's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.definition.description import TableSink
from headrace.spark.pipeline.frame.delta_statistics import statistics_of
from headrace.spark.pipeline.frame.delta_table import import_deltalake
from headrace.spark.pipeline.run.lock import unusable
from headrace.spark.pipeline.run.spark_logs import analysis
from headrace.spark.pipeline.sinks.compaction import compact
from headrace.spark.pipeline.sinks.delta_log import DeltaLog, add_action, delta_schema
from headrace.spark.pipeline.sinks.delta_rules import check_writable, without_nulls
from headrace.spark.pipeline.sinks.file_commit import CommitManifest, FileCommit
from headrace.spark.pipeline.sinks.sink import has_batch, in_order, with_order
from headrace.spark.write.fingerprint import BatchId

DATE: Final = "date"
_FORMATS: Final = "org.apache.spark.sql.execution.datasources"
_WRITERS: Final = {
    "csv": "csv.CSVFileFormat",
    "json": "json.JsonFileFormat",
    "orc": "orc.OrcFileFormat",
    "parquet": "parquet.ParquetFileFormat",
    "text": "text.TextFileFormat",
}


class WriterState(Protocol):
    """What a table remembers of a writer: see `FileCommit`, and `LogState` for object stores."""

    def newest(self) -> tuple[int, int | None]: ...
    def open(self, commit: Callable[[CommitManifest], None], finishes: Callable[[CommitManifest], bool]) -> None: ...
    def close(self) -> None: ...
    def has_load(self, load: str) -> bool: ...


class TableSinkWriter:
    """Files of any format that Spark writes as files."""

    def __init__(
        self, sink: TableSink, writer: str, is_stream: bool, field: str = "sink", load: str | None = None
    ) -> None:
        assert sink.path is not None
        self._sink = sink
        self._load = load
        self._is_stream = is_stream
        self._field = field
        self._partition_by = list(sink.partition_by) + ([DATE] if sink.partition_date else [])
        self._landing = FileCommit(Path(sink.path).absolute(), writer)
        self._state: WriterState = self._landing
        self.schema = StructType()
        self.duplicates = 0

    def prepare(self, rows: DataFrame) -> DataFrame:
        """With the column of the date, if the table is divided by one."""
        for name in self._sink.partition_by:
            if name not in rows.columns:
                rule = f"this column does not exist: the rows have {', '.join(rows.columns)}"
                raise InvalidInput(f"{self._field}.partition_by", name, rule)
        if self._sink.partition_date is not None:
            if DATE in (name.lower() for name in rows.columns):
                raise InvalidInput(
                    f"{self._field}.partition_date", self._sink.partition_date, "the rows already have a column date"
                )
            with analysis(f"{self._field}.partition_date", self._sink.partition_date):
                rows = rows.withColumn(DATE, F.to_date(F.expr(self._sink.partition_date)))
        check_columns(rows, self.file_format, self._partition_by, self._field)
        self.schema = rows.schema
        return with_order(rows, self._sink.order_by)

    def open(self) -> None:
        """Finish a batch or a merge that was under way, or take it back."""
        try:
            self._state.open(self.commit, self.finishes)
        except OSError as error:
            raise InvalidInput(f"{self._field}.path", str(self._sink.path), unusable(error)) from None

    def write(self, rows: DataFrame, batch: BatchId | None) -> None:
        """Write the files, and put them into the table, unless an earlier run has done so."""
        if batch is None:
            if self._load is None or not self._state.has_load(self._load):
                self._store(in_order(rows), CommitManifest(self._state.newest()[0] + 1, [], [], load=self._load))
        elif not self._is_written(batch):
            self._store(in_order(rows), CommitManifest(batch.number, [], [], batch.fingerprint))

    def _is_written(self, batch: BatchId) -> bool:
        return has_batch(batch, *self._state.newest(), f"{self._field}.path", str(self._sink.path))

    def _store(self, ordered: DataFrame, batch: CommitManifest) -> None:
        """Write a batch and commit it."""
        stage = self._landing.new_stage()
        writer = ordered.write.format(self.file_format).options(**self._sink.options)
        (writer.partitionBy(*self._partition_by) if self._partition_by else writer).save(str(stage))
        _drop_empty(stage)
        self.compact(self._landing.land(stage, batch.number, self.commit, batch.fingerprint, batch.load))

    def close(self) -> None:
        """Let other runs write as this writer."""
        self._state.close()

    @property
    def file_format(self) -> str:
        """What Spark writes."""
        return self._sink.format

    def commit(self, manifest: CommitManifest) -> None:
        """Make moved files count; in a plain directory they count by being there."""

    def finishes(self, manifest: CommitManifest) -> bool:
        """Whether a batch that was under way when we were killed is brought to its end: a stream never repeats it."""
        return self._is_stream or bool(manifest.removals)

    def compact(self, files: list[Path]) -> None:
        """Merge small files where the batch put new ones."""
        if self._sink.compact_files is not None:
            compact(self._landing, [file.parent for file in files], self._sink.compact_files, self._sink.compact_bytes)


class DeltaSinkWriter(TableSinkWriter):
    """A Delta table."""

    file_format = "parquet"

    def __init__(
        self, sink: TableSink, writer: str, is_stream: bool, field: str = "sink", load: str | None = None
    ) -> None:
        super().__init__(sink, writer, is_stream, field, load)
        import_deltalake(f"{field}.format")
        self._writer = writer
        self._log = DeltaLog(str(self._landing.table))

    def prepare(self, rows: DataFrame) -> DataFrame:
        """The columns must be those of the table, if it exists."""
        prepared = super().prepare(rows)
        table = self._log.table(is_quick=True)
        if table is not None:
            named = {field.name: str(field.type) for field in table.schema().fields}
            asked = {field.name: str(field.type) for field in delta_schema(self.schema).fields}
            lower = {name.lower() for name in named}
            is_new = {name: name not in named and name.lower() not in lower for name in asked}
            if named != {name: kind for name, kind in asked.items() if not is_new[name]}:
                raise InvalidInput(f"{self._field}.path", str(self._sink.path), f"the table has {named}, not {asked}")
            return self.by_rules(table, prepared)
        return prepared

    def by_rules(self, table: Any, rows: DataFrame) -> DataFrame:
        """Rows that follow the rules of the table; raises if its rules cannot be followed by adding files."""
        check_writable(table, str(self._sink.path), self._field, self._partition_by)
        return without_nulls(table, rows)

    def commit(self, manifest: CommitManifest) -> None:
        """Add the files to the log, in an entry that is written once."""
        self._add(manifest, [self._action(place) for _, place in manifest.moves])

    def _add(self, manifest: CommitManifest, actions: list[Any]) -> None:
        """Write an entry with these files, unless the log has the batch."""
        table = self._log.open(self.schema, self._partition_by)
        if not self._has(table, manifest):
            columns, properties = delta_schema(self.schema), self._properties(manifest)
            table.create_write_transaction(
                actions, "append", columns, partition_by=self._partition_by, commit_properties=properties
            )

    def _properties(self, manifest: CommitManifest) -> Any:
        """What the entry of a batch carries, so that it is written once."""
        from deltalake import CommitProperties, Transaction

        numbers = self._numbers(manifest)
        return CommitProperties(app_transactions=[Transaction(name, number) for name, number in numbers.items()])

    def _numbers(self, manifest: CommitManifest) -> dict[str, int]:
        """By name; whatever else is known of a batch is in a file beside the table."""
        return {self._writer: manifest.number}

    def finishes(self, manifest: CommitManifest) -> bool:
        """A batch that the log has was written."""
        return self._is_stream or self._is_logged(manifest)

    def _is_logged(self, manifest: CommitManifest) -> bool:
        """Whether the table's log has the batch."""
        return self._has(self._log.table(), manifest)

    def _has(self, table: Any, manifest: CommitManifest) -> bool:
        """Whether this version of the table, None if there is none, has the batch."""
        number = None if table is None else table.transaction_version(self._writer)
        return number is not None and number >= manifest.number

    def compact(self, files: list[Path]) -> None:
        """Let Delta merge small files where there are enough, and delete what was merged long ago."""
        if files:
            self.compact_table(pq.read_metadata(files[0]).row_group(0).column(0).compression)

    def compact_table(self, codec: Any) -> None:
        """Let Delta merge small files, if the sink asks for it."""
        if self._sink.compact_files is not None:
            self._log.compact(self._sink.compact_files, self._sink.compact_bytes, codec)

    def _action(self, place: str) -> Any:
        file = self._landing.table / place
        entry = file.stat()
        statistics = statistics_of(pq.read_metadata(file))
        return add_action(place, entry.st_size, statistics, int(entry.st_mtime * 1000))


def _drop_empty(stage: Path) -> None:
    """Spark writes a file for a batch without rows too, so that it has a schema: a table needs none of them."""
    for file in [file for file in stage.rglob("*") if file.is_file()]:
        is_parquet = file.suffix == ".parquet" and file.name[0] not in "._"
        if file.stat().st_size == 0 or (is_parquet and pq.read_metadata(file).num_rows == 0):
            file.unlink()


def check_columns(rows: DataFrame, file_format: str, partition_by: Sequence[str], field: str) -> None:
    """Raise for rows that cannot be written to files of a format, in directories by `partition_by`.

    Spark's own writers say which types they take. On Spark Connect they cannot be asked, and the first batch fails.
    """
    for name, count in Counter(name.lower() for name in rows.columns).items():
        if count > 1:
            rule = f"{count} columns have this name, whatever the case: rename one in a step"
            raise InvalidInput(field, f"given the column {name}", rule)
    directories = {name.lower() for name in partition_by}
    in_files = [name for name in rows.columns if name.lower() not in directories]
    if not in_files:
        rule = "every column is a directory, and none is left for the files: name fewer columns"
        raise InvalidInput(f"{field}.partition_by", ", ".join(partition_by), rule)
    if file_format == "text" and len(in_files) > 1:
        rule = f"it has one column of text, and the rows have {', '.join(in_files)}: select one in a step"
        raise InvalidInput(f"{field}.format", "text", rule)
    _check_types(rows, file_format, set(in_files), field)


def _check_types(rows: DataFrame, file_format: str, names: set[str], field: str) -> None:
    plan, java = getattr(rows, "_jdf", None), getattr(rows.sparkSession, "_jvm", None)
    if plan is None or java is None or file_format not in _WRITERS:
        return
    writer = getattr(java, f"{_FORMATS}.{_WRITERS[file_format]}")()
    for column in plan.schema().fields():
        if column.name() in names and not writer.supportDataType(column.dataType()):
            kind = column.dataType().simpleString()
            rule = f"it cannot hold the column {column.name()} of type {kind}: convert it in a step, or leave it out"
            raise InvalidInput(f"{field}.format", file_format, rule)

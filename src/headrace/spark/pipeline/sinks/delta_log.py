"""The log of a Delta table, in a directory or on an object store: all that is known of a table is read from it.

An entry of the log is the only thing that makes files count. Each entry of a pipeline carries numbers by name (Delta's
`txn`), which an entry replaces and which Delta keeps for ever:

    <writer>                 the number of the writer's last batch
    <writer>-fingerprint     what that batch is, on object stores
    headrace-load-<hash>     1 if a load with this id was written, on object stores

Two entries with one of these names, made at the same time, exclude each other: the second one fails. It must have been
read from the table that is committed to, so `table` is called once for both.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

from pyarrow import fs
from pyspark.sql.types import StructType

from headrace.spark.pipeline.frame.delta_table import open_delta
from headrace.spark.pipeline.frame.object_store import ObjectStore
from headrace.spark.pipeline.sinks.delta_compaction import merge_small_files, values_of
from headrace.spark.pipeline.sinks.file_commit import CommitManifest

# How old files that no version has must be to be deleted: another writer may be about to add them.
_STRAY_HOURS: Final = 7 * 24


class DeltaLog:
    """The log of a table; store: where the table is if that is no directory."""

    def __init__(self, url: str, store: ObjectStore | None = None) -> None:
        self.url = url
        self.store = store

    def options(self, is_quick: bool = False) -> dict[str, str] | None:
        """The options of `deltalake` for the store."""
        return None if self.store is None else self.store.delta_options(is_quick)

    def table(self, is_quick: bool = False) -> Any:
        """The newest version of the table, None if there is none; is_quick: fail soon if the store does not answer."""
        return open_delta(self.url, self.options(is_quick))

    def create(self, schema: StructType, partition_by: list[str]) -> Any:
        """The table, without rows if it did not exist.

        Rows are added by another entry. If an entry with this number exists, `deltalake` writes the one that creates a
        table again, under the next number and without looking for conflicts; without rows that does no harm.
        """
        from deltalake import CommitProperties, DeltaTable
        from deltalake.exceptions import DeltaError

        options, properties = self.options(), CommitProperties(max_commit_retries=0)
        try:
            DeltaTable.create(
                self.url,
                delta_schema(schema),
                "error",
                partition_by,
                storage_options=options,
                commit_properties=properties,
            )
        except (OSError, DeltaError):
            # Another run was faster, or the answer was lost.
            if self.table() is None:
                raise
        return self.table()

    def open(self, schema: StructType, partition_by: list[str]) -> Any:
        """The table, created if it does not exist, with all columns of a schema: those that it lacks are added."""
        table = self.table() or self.create(schema, partition_by)
        known = {field.name for field in table.schema().fields}
        missing = [field for field in delta_schema(schema).fields if field.name not in known]
        if not missing:
            return table
        table.alter.add_columns(missing)
        return self.table()

    def number_of(self, name: str, is_quick: bool = False) -> int | None:
        """The number that the log has under a name."""
        table = self.table(is_quick)
        return None if table is None else table.transaction_version(name)

    def compact(self, files_min: int, bytes_max: int, codec: Any) -> None:
        """Let Delta merge small files if a directory has enough of them, and delete what was merged long ago."""
        if not merge_small_files(self.table(), self._files(), files_min, bytes_max, codec):
            return
        # Readers of older versions need merged files: they stay for as long as the table says, a week by default.
        self.table().vacuum(dry_run=False)
        if self.store is not None:
            self._delete_strays()

    def _files(self) -> fs.FileSystem:
        """The directory of the table."""
        if self.store is None:
            return fs.SubTreeFileSystem(self.url, fs.LocalFileSystem())
        parts = urlsplit(self.url)
        return fs.SubTreeFileSystem(f"{parts.netloc}/{parts.path.strip('/')}", self.store.files())

    def _delete_strays(self) -> None:
        """Delete what no version has: files of batches that were killed."""
        from deltalake.exceptions import DeltaError

        try:
            self.table().vacuum(retention_hours=_STRAY_HOURS, dry_run=False, full=True)
        except DeltaError as error:
            if "retention" not in str(error):
                raise
            # The table keeps files for longer than that.
            self.table().vacuum(dry_run=False, full=True)


class LogState:
    """What a table on an object store remembers of a writer: only what its log says."""

    def __init__(self, log: DeltaLog, writer: str) -> None:
        self._log = log
        self._writer = writer

    def open(self, commit: object, finishes: object) -> None:
        """Nothing is left undone: files without an entry in the log do not count."""

    def close(self) -> None:
        """Nothing is locked: two runs with one checkpoint exclude each other there."""

    def newest(self) -> tuple[int, int | None]:
        """The last batch written: its number, -1 before the first, and its fingerprint, if it has one."""
        table = self._log.table()
        number = None if table is None else table.transaction_version(self._writer)
        return (-1, None) if number is None else (number, table.transaction_version(_fingerprint_name(self._writer)))

    def has_load(self, load: str) -> bool:
        """Whether a load with this id was written, by whichever pipeline."""
        return self._log.number_of(load_name(load)) is not None


def numbers(writer: str, manifest: CommitManifest) -> dict[str, int]:
    """What an entry of a table on an object store carries."""
    named = {writer: manifest.number}
    if manifest.fingerprint is not None:
        named[_fingerprint_name(writer)] = manifest.fingerprint
    return named if manifest.load is None else named | {load_name(manifest.load): 1}


def _fingerprint_name(writer: str) -> str:
    return f"{writer}-fingerprint"


def load_name(load: str) -> str:
    """The name under which the log has a load."""
    return f"headrace-load-{sha256(load.encode()).hexdigest()}"


def delta_schema(schema: StructType) -> Any:
    """The columns of a table: nullable, since rows of other batches may lack what those of this one have."""
    from deltalake import Schema

    made = StructType()
    for field in schema.fields:
        made.add(field.name, field.dataType, True)
    return Schema.from_json(made.json())


def add_action(place: str, size_bytes: int, statistics: str, written_at_ms: int) -> Any:
    """What the log says about a file."""
    from deltalake.transaction import AddAction

    return AddAction(place, size_bytes, values_of(place), written_at_ms, True, statistics)

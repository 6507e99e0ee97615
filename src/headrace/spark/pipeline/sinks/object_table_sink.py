"""A Delta table on an object store as sink: nothing is renamed, and the table's log alone decides.

    tasks ──► <table>/[column=value/]part-<writer>-<number>-<unique>.parquet     files in no version of the table
                     │
                     ▼
              _delta_log/<version>.json     one conditional write (If-None-Match): adds the files, and carries the
                                            writer, the number of the batch and its fingerprint

    upsert:   <table>/stage-<writer>-…      rows of the batch, deleted after the MERGE, which is one such entry

A kill before the entry leaves strays, and the batch is written anew under other names; a kill after it makes the
repeated batch a no-op. If the answer to the write of the entry is lost, `deltalake` says that it failed, and the log
is read again. A second run that writes the same batch finds its number in the log, or fails to write its entry, since
two entries of one writer exclude each other; it then finds the batch with the same fingerprint, and goes on.

A batch that is no part of a stream has a random fingerprint: it only tells whether an entry is that of this run.
"""

from __future__ import annotations

import secrets
import time
from typing import Final

import msgspec
from pyspark.sql import DataFrame

from headrace.core.errors import StoreUnavailable
from headrace.core.publish.state import FINGERPRINT_BITS
from headrace.spark.pipeline.frame.object_store import object_store, plain_text, store_errors
from headrace.spark.pipeline.sinks.delta_log import DeltaLog, LogState, add_action, numbers
from headrace.spark.pipeline.sinks.file_commit import CommitManifest
from headrace.spark.pipeline.sinks.object_table_files import ObjectTableFiles, WrittenFile
from headrace.spark.pipeline.sinks.table_sink import DeltaSinkWriter
from headrace.spark.pipeline.sinks.upsert_sink import CODEC, UpsertSinkWriter
from headrace.spark.write.fingerprint import BatchId

_COMPRESSION: Final = "compression"


class ObjectTableSinkWriter(DeltaSinkWriter):
    """A Delta table on an object store that rows are appended to."""

    _written: list[WrittenFile]

    def prepare(self, rows: DataFrame) -> DataFrame:
        """Find the store by the settings of the session that has the rows."""
        assert self._sink.path is not None
        url = self._sink.path.rstrip("/")
        self._log = DeltaLog(url, object_store(rows.sparkSession, url))
        self._state = LogState(self._log, self._writer)
        with store_errors(self._field, url):
            return super().prepare(rows)

    def write(self, rows: DataFrame, batch: BatchId | None) -> None:
        """Write a batch unless the log has it."""
        with store_errors(self._field, self._log.url):
            super().write(rows, batch)

    def _store(self, ordered: DataFrame, batch: CommitManifest) -> None:
        files = self._files(f"part-{self._writer}-{batch.number:010d}", tuple(self._partition_by))
        self._written = files.write(ordered)
        self.commit(_with_fingerprint(batch))
        if self._written:
            self.compact_table(files.compression.upper())

    def commit(self, manifest: CommitManifest) -> None:
        """Write the entry, and make sure that the log has this batch."""
        from deltalake.exceptions import DeltaError

        reason = "its log does not have what was written: does the store support If-None-Match?"
        try:
            self._commit_once(manifest)
        except (OSError, DeltaError) as error:
            # It may have been written all the same.
            reason = plain_text(error)
        if not self._is_written(BatchId(manifest.number, manifest.fingerprint)):
            place = f"{self._field}.path: batch {manifest.number} was not written"
            raise StoreUnavailable(self._log.url, f"{place}: {reason}")

    def _commit_once(self, manifest: CommitManifest) -> None:
        now = int(time.time() * 1000)
        self._add(manifest, [add_action(file.path, file.bytes, file.statistics, now) for file in self._written])

    def _numbers(self, manifest: CommitManifest) -> dict[str, int]:
        return numbers(self._writer, manifest)

    def _files(self, name: str, partition_by: tuple[str, ...] = ()) -> ObjectTableFiles:
        assert self._log.store is not None, "known since `prepare`"
        compression = self._sink.options.get(_COMPRESSION, CODEC).lower()
        return ObjectTableFiles(self._log.store, self._log.url, name, partition_by, compression)


class ObjectUpsertSinkWriter(ObjectTableSinkWriter, UpsertSinkWriter):
    """A Delta table on an object store that rows are merged into."""

    def _store(self, ordered: DataFrame, batch: CommitManifest) -> None:
        files = self._files(f"stage-{self._writer}-{batch.number:010d}")
        self._written = files.write(ordered)
        self._staged = files.dataset(self._written) if self._written else None
        if self._staged is not None:
            self._check_keys(self._staged)
        self.commit(_with_fingerprint(batch))
        files.delete(self._written)
        self.compact_table(CODEC)

    def _commit_once(self, manifest: CommitManifest) -> None:
        if self._staged is None:
            self._add(manifest, [])
        else:
            UpsertSinkWriter.commit(self, manifest)


def _with_fingerprint(batch: CommitManifest) -> CommitManifest:
    """The batch with something that tells it from others with its number."""
    if batch.fingerprint is not None:
        return batch
    return msgspec.structs.replace(batch, fingerprint=secrets.randbits(FINGERPRINT_BITS))

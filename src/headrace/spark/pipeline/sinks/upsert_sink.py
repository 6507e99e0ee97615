"""A Delta table with one row per key as sink: a row replaces the one with its keys, or removes it.

    Spark ──► _headrace/<writer>/stage-<id>/   one row per key: the last one in the order of `order_by`
                     │
                     ▼
              MERGE, in one entry of the table's log, with the writer and the number of the batch

The entry is what decides: a batch that the log has is not merged again, one that it lacks is merged when the stream
repeats it. Nothing is moved, so the manifest only remembers the batch's fingerprint over a kill.

`deltalake` merges in the driver's process: it reads the files that may have keys of the batch, and writes them again.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.run.spark_logs import analysis
from headrace.spark.pipeline.sinks.delta_rules import check_mergeable
from headrace.spark.pipeline.sinks.file_commit import CommitManifest
from headrace.spark.pipeline.sinks.sink import last_of_each_key, order_columns
from headrace.spark.pipeline.sinks.table_sink import DeltaSinkWriter
from headrace.spark.write.fingerprint import BatchId

_DELETED: Final = "_headrace_deleted"
CODEC: Final = "SNAPPY"


class UpsertSinkWriter(DeltaSinkWriter):
    """A Delta table that rows are merged into."""

    _staged: ds.Dataset | None = None

    def prepare(self, rows: DataFrame) -> DataFrame:
        """With a column that says whether a row removes the one with its keys."""
        for name in self._sink.keys:
            if name not in rows.columns:
                rule = f"this column does not exist: the rows have {', '.join(rows.columns)}"
                raise InvalidInput(f"{self._field}.keys", name, rule)
        prepared = super().prepare(rows)
        condition = self._sink.delete_when or "false"
        with analysis(f"{self._field}.delete_when", condition):
            return prepared.withColumn(_DELETED, F.coalesce(F.expr(condition), F.lit(False)))

    def by_rules(self, table: Any, rows: DataFrame) -> DataFrame:
        """The same rows: MERGE follows the rules of the table."""
        check_mergeable(table, str(self._sink.path), self._field)
        return rows

    def write(self, rows: DataFrame, batch: BatchId | None) -> None:
        """Merge the last row of each key."""
        if order_columns(rows):
            rows = last_of_each_key(rows, self._sink.keys)
        super().write(rows, batch)

    def _store(self, ordered: DataFrame, batch: CommitManifest) -> None:
        stage = self._landing.new_stage()
        ordered.write.parquet(str(stage))
        self._staged = ds.dataset(stage)
        self._check_keys(self._staged)
        self._landing.replace(batch, self.commit)
        self._landing.drop_stage(stage)
        self.compact_table(CODEC)

    def commit(self, manifest: CommitManifest) -> None:
        """Merge what is staged, in an entry of the log that is written once."""
        from deltalake import WriterProperties

        table = self._log.open(self.schema, self._partition_by)
        if self._has(table, manifest):
            return
        assert self._staged is not None, "a manifest of an earlier run is applied only if the log has its batch"
        merge = table.merge(
            self._staged.scanner().to_reader(),
            " AND ".join(f"target.{_named(key)} = source.{_named(key)}" for key in self._sink.keys),
            source_alias="source",
            target_alias="target",
            writer_properties=WriterProperties(compression=CODEC),
            commit_properties=self._properties(manifest),
        )
        deleted = f"source.{_named(_DELETED)}"
        merge = merge.when_matched_delete(deleted)
        merge = merge.when_matched_update_all(except_cols=[_DELETED])
        merge.when_not_matched_insert_all(f"NOT {deleted}", except_cols=[_DELETED]).execute()

    def finishes(self, manifest: CommitManifest) -> bool:
        """A batch that the log lacks is merged when it is repeated: what was staged may be gone."""
        return self._is_logged(manifest)

    def _check_keys(self, staged: ds.Dataset) -> None:
        """A key identifies one row: none is NULL, and none has two rows without an order between them."""
        keys = staged.to_table(columns=self._sink.keys)
        for name in self._sink.keys:
            if keys[name].null_count:
                rule = (
                    f"{keys[name].null_count} rows have NULL in it, so that nothing identifies them: leave such rows "
                    f"out in a step, WHERE {name} IS NOT NULL; nothing of this batch was written"
                )
                raise InvalidInput(f"{self._field}.keys", name, rule)
        counts = keys.group_by(self._sink.keys).aggregate([([], "count_all")])
        repeated = counts.filter(pc.greater(counts["count_all"], pa.scalar(1)))
        if len(repeated):
            shown = ", ".join(f"{name} {repeated[name][0]}" for name in self._sink.keys)
            rule = (
                f"one batch has {repeated['count_all'][0]} rows of {shown}: set {self._field}.order_by, such as "
                '["message.timestamp"], so that the last one counts; nothing of this batch was written'
            )
            raise InvalidInput(f"{self._field}.keys", ", ".join(self._sink.keys), rule)


def _named(column: str) -> str:
    """A column in the SQL of the merge."""
    return '"' + column.replace('"', '""') + '"'

"""Where rows go: what every sink can do, and the two that need little.

`prepare` is called once, before anything runs: it gives the rows their final columns, or says what is wrong with them.
`open` is called when a run begins, and ends what an earlier one left undone; `close` is called when it ends. `write` is
called with the rows of a batch, and with its id if it is one of a stream: the same batch again must not write again,
and another batch with its number is an error. A destination is used by one thread at a time.
"""

from __future__ import annotations

from typing import Final, Protocol

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.definition.description import ReportSink, TableSink
from headrace.spark.pipeline.run.spark_logs import analysis, quoted
from headrace.spark.write.fingerprint import BatchId

_ORDER: Final = "_headrace_order_"
_RANK: Final = "_headrace_rank"


class SinkWriter(Protocol):
    """A sink at work; `duplicates` counts rows that it did not take since it had them."""

    duplicates: int

    def prepare(self, rows: DataFrame) -> DataFrame:
        """The rows as they are to be written."""

    def open(self) -> None:
        """Begin a run."""

    def write(self, rows: DataFrame, batch: BatchId | None) -> None:
        """Write the rows of a batch; None if there is only one."""

    def close(self) -> None:
        """End a run, also one that was not opened."""


class AnyFormat:
    """Whatever Spark writes: each batch at least once."""

    def __init__(self, sink: TableSink) -> None:
        self._sink = sink
        self.duplicates = 0

    def prepare(self, rows: DataFrame) -> DataFrame:
        """As they are, with what they are sorted by."""
        return with_order(rows, self._sink.order_by)

    def open(self) -> None:
        """Nothing is ever left."""

    def write(self, rows: DataFrame, batch: BatchId | None) -> None:
        """Append."""
        writer = in_order(rows).write.format(self._sink.format).options(**self._sink.options).mode("append")
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.save(self._sink.path)

    def close(self) -> None:
        """Nothing is held."""


class BatchReport:
    """Rows that are kept for printing; `is_refused` if any of them fulfils the condition."""

    def __init__(self, sink: ReportSink) -> None:
        self._sink = sink
        self.columns: list[str] = []
        self.rows: list[list[object]] = []
        self.is_refused = False
        self.duplicates = 0

    def prepare(self, rows: DataFrame) -> DataFrame:
        """With a column that says whether a row is a bad one."""
        condition = self._sink.fail_when or "false"
        with analysis("sink.fail_when", condition):
            return with_order(rows.withColumn("_headrace_failed", F.expr(condition)), self._sink.order_by)

    def open(self) -> None:
        """Nothing is ever left."""

    def write(self, rows: DataFrame, batch: BatchId | None) -> None:
        """Take the rows in."""
        taken = in_order(rows).collect()
        self.columns = [name for name in rows.columns if not name.startswith("_headrace_")]
        self.rows = [[row[name] for name in self.columns] for row in taken]
        self.is_refused = any(row["_headrace_failed"] for row in taken)

    def close(self) -> None:
        """Nothing is held."""


def with_order(rows: DataFrame, order_by: list[str]) -> DataFrame:
    """The rows with what they will be sorted by in columns of their own: a stream is sorted batch by batch."""
    added = {}
    for number, expression in enumerate(order_by):
        bare, _, direction = expression.rpartition(" ")
        is_descending = direction.upper() == "DESC" and bool(bare)
        name = f"{_ORDER}{number}_{'desc' if is_descending else 'asc'}"
        added[name] = F.expr(bare if is_descending else expression)
    with analysis("sink.order_by", ", ".join(order_by)):
        return rows.withColumns(added) if added else rows


def in_order(rows: DataFrame) -> DataFrame:
    """The rows sorted by those columns, and without them."""
    names = order_columns(rows)
    if not names:
        return rows
    return rows.orderBy(*order_keys(rows)).drop(*names)


def order_keys(rows: DataFrame, is_reversed: bool = False) -> list[Column]:
    """What the rows are sorted by: the first of them comes first, or the last."""
    return [
        F.col(name).desc() if name.endswith("_desc") != is_reversed else F.col(name).asc()
        for name in order_columns(rows)
    ]


def order_columns(rows: DataFrame) -> list[str]:
    """The columns that rows will be sorted by."""
    return [name for name in rows.columns if name.startswith(_ORDER)]


def has_batch(batch: BatchId, last: int, fingerprint: int | None, field: str, place: str) -> bool:
    """Whether a table has this batch, by the last one it got; raises if the checkpoint does not belong to it."""
    if batch.number < last:
        rule = (
            f"its last batch was {last} and this is {batch.number}: the checkpoint is older than the table. "
            "Use a new sink_id with a new checkpoint; nothing of this batch was written"
        )
        raise InvalidInput(field, place, rule)
    if batch.number > last:
        return False
    if batch.fingerprint is not None and fingerprint not in (None, batch.fingerprint):
        rule = (
            f"its batch {last} was written by another run: two pipelines write with one sink_id, or a "
            "checkpoint was copied. Give each its own sink_id and its own checkpoint; nothing of this batch "
            "was written"
        )
        raise InvalidInput(field, place, rule)
    return True


def last_of_each_key(rows: DataFrame, keys: list[str]) -> DataFrame:
    """The last row of each key by what they are sorted by, without that."""
    window = Window.partitionBy(*map(quoted, keys)).orderBy(*order_keys(rows, is_reversed=True))
    ranked = rows.withColumn(_RANK, F.row_number().over(window)).where(F.col(_RANK) == 1)
    return ranked.drop(_RANK, *order_columns(rows))

"""A table of PostgreSQL as sink: tasks copy rows aside, the driver inserts them in one transaction with their number.

    Spark's tasks ──► headrace_stage_…        COPY, each attempt of a task under a name of its own
                            │
                            ▼
    one transaction:  lock the row of this writer in headrace_batches; has it this batch, nothing is done
                      INSERT … SELECT from the attempts that succeeded (ON CONFLICT … UPDATE for an upsert)
                      the number and fingerprint of the batch; drop what was aside

A batch that Spark repeats after a kill finds its number and writes nothing. If the answer to COMMIT is lost the query
fails, and the repeated batch finds out. What a killed run left aside is dropped when the next one begins. Executors
need psycopg, and reach the database by the same URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, LiteralString

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, DecimalType

from headrace.core.errors import HeadraceError, InvalidInput, StoreUnavailable
from headrace.spark.pipeline.definition.description import DatabaseSink
from headrace.spark.pipeline.sinks.database.copying import copied
from headrace.spark.pipeline.sinks.database.tables import Batches, Database, StagingTable, TargetTable
from headrace.spark.pipeline.sinks.sink import has_batch, last_of_each_key, order_columns, with_order
from headrace.spark.write.fingerprint import BatchId

if TYPE_CHECKING:
    import psycopg

# What rows are held in aside; they become what the columns of the table are.
_TYPES: Final[Mapping[str, LiteralString]] = MappingProxyType(
    {
        "boolean": "boolean",
        "tinyint": "smallint",
        "smallint": "smallint",
        "int": "integer",
        "bigint": "bigint",
        "float": "real",
        "double": "double precision",
        "string": "text",
        "binary": "bytea",
        "date": "date",
        "timestamp": "timestamptz",
        "timestamp_ntz": "timestamp",
    }
)


class DatabaseSinkWriter:
    """Rows to one table of a database."""

    def __init__(self, sink: DatabaseSink, writer: str, field: str = "sink", load: str | None = None) -> None:
        self._sink = sink
        self._writer = writer
        self._field = field
        self._load = load
        self._database = Database(sink.database, field)
        self.duplicates = 0

    def prepare(self, rows: DataFrame) -> DataFrame:
        """As they are, if the table has their columns."""
        self._staging(self._target(), rows)
        return with_order(rows, self._sink.order_by)

    def open(self) -> None:
        """Drop what an interrupted run left."""
        target = self._target()
        with self._database.transaction() as connection:
            Batches(target, self._writer).create(connection)
            StagingTable(target, self._writer, {}).drop_all(connection)

    def write(self, rows: DataFrame, batch: BatchId | None) -> None:
        """Insert a batch, unless it was inserted before."""
        target = self._target()
        batches = Batches(target, self._writer if batch is not None else str(self._load))
        number = BatchId(0) if batch is None else batch
        is_numbered = batch is not None or self._load is not None
        with self._database.transaction() as connection:
            if is_numbered and has_batch(number, *batches.last(connection), self._field, self._sink.table):
                return
        if order_columns(rows):
            rows = last_of_each_key(rows, self._sink.keys)
        staging = self._staging(target, rows)
        with self._database.transaction() as connection:
            staging.create(connection)
            statement = staging.copy_statement(connection)
        try:
            found = rows.mapInArrow(copied(self._sink.database, statement), "part STRING, rows BIGINT").collect()
            counts = {row.part: row.rows for row in found if row.rows}
            with self._database.transaction() as connection:
                # Another run may have inserted it meanwhile.
                if not is_numbered or not has_batch(number, *batches.lock(connection), self._field, self._sink.table):
                    self._insert(connection, staging, counts)
                    if is_numbered:
                        batches.put(connection, number.number, number.fingerprint)
                staging.drop(connection)
        except BaseException:
            self._drop(staging)
            raise

    def _insert(self, connection: psycopg.Connection, staging: StagingTable, counts: Mapping[str, int]) -> None:
        keys, parts, expected = self._sink.keys, list(counts), sum(counts.values())
        if keys and staging.has_null(connection, parts, keys):
            rule = (
                "rows have NULL in one of them, so that nothing identifies them: leave such rows out in a step; "
                "nothing of this batch was written"
            )
            raise InvalidInput(f"{self._field}.keys", ", ".join(keys), rule)
        inserted = staging.insert(connection, parts, keys)
        if inserted != expected:
            reason = f"{expected:,} rows were copied and {inserted:,} are left, as after a crash: nothing was written"
            raise StoreUnavailable(f"the database of {self._field}", reason)

    def _drop(self, staging: StagingTable) -> None:
        """After a failure; the next run drops what cannot be dropped now."""
        try:
            with self._database.transaction() as connection:
                staging.drop(connection)
        except HeadraceError:
            pass

    def close(self) -> None:
        """Nothing is held."""

    def last_batch(self) -> int | None:
        """The number of the last batch that this writer has inserted; of a load 0, once it was."""
        target = self._target()
        with self._database.transaction() as connection:
            number, _ = Batches(target, self._writer).last(connection)
        return None if number < 0 else number

    def _target(self) -> TargetTable:
        with self._database.transaction() as connection:
            target = self._database.target(connection, self._sink.table)
        keys = self._sink.keys
        if keys and frozenset(keys) not in target.unique:
            rule = f"no unique index of {self._sink.table} has just these columns: create one, so that a key is one row"
            raise InvalidInput(f"{self._field}.keys", ", ".join(keys), rule)
        return target

    def _staging(self, target: TargetTable, rows: DataFrame) -> StagingTable:
        """For these rows; raises if the table cannot take them."""
        types: dict[str, LiteralString] = {}
        waiting = set(order_columns(rows))
        for column in rows.schema.fields:
            if column.name in waiting:
                continue
            kind = _type_of(column.dataType)
            if column.name not in target.columns:
                rule = f"the table {self._sink.table} has no such column: it has {', '.join(target.columns)}"
                raise InvalidInput(self._field, f"given the column {column.name}", rule)
            if kind is None:
                rule = f"a table cannot hold {column.dataType.simpleString()}: convert it in a step, as by to_json"
                raise InvalidInput(self._field, f"given the column {column.name}", rule)
            types[column.name] = kind
        for key in self._sink.keys:
            if key not in types:
                rule = f"this column does not exist: the rows have {', '.join(types)}"
                raise InvalidInput(f"{self._field}.keys", key, rule)
        return StagingTable(target, self._writer, types)


def _type_of(kind: DataType) -> LiteralString | None:
    if isinstance(kind, DecimalType):
        return "numeric"
    return _TYPES.get(kind.simpleString())

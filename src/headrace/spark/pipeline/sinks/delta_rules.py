"""What an existing Delta table demands of its writers, and whether files can be added to it as they are.

A sink that appends adds files that Spark or Arrow has written: `deltalake` looks neither at their rows nor at their
directories. Rules of the table that its own writers would follow row by row are therefore refused before the first
batch. A MERGE is executed by `deltalake`, which follows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.run.spark_logs import quoted

_COLUMN_RULES: Final = {"delta.invariants": "an invariant", "delta.generationExpression": "a generated column"}


def check_mergeable(table: Any, path: str, field: str) -> None:
    """Raise if `deltalake` would write columns under other names than those of the table's files."""
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise InvalidInput(f"{field}.path", path, "the table has delta.columnMapping.mode: write to another table")


def check_writable(table: Any, path: str, field: str, partition_by: Sequence[str]) -> None:
    """Raise if files with the columns of the table must not simply be added to it."""
    check_mergeable(table, path, field)
    divided_by = table.metadata().partition_columns
    if sorted(divided_by) != sorted(partition_by):
        rule = (
            f"the table is divided by {', '.join(divided_by) or 'no column'}: files that are divided otherwise would "
            f"lose values. Set {field}.partition_by to these columns, or write to another table"
        )
        raise InvalidInput(f"{field}.partition_by", ", ".join(partition_by) or "missing", rule)
    demands = ", ".join(_demands(table))
    if demands:
        rule = f"the table has {demands}, which files that are added to it would not follow: write to another table"
        raise InvalidInput(f"{field}.path", path, rule)


def _demands(table: Any) -> Iterator[str]:
    settings = table.metadata().configuration
    yield from (f"the constraint {name}" for name in settings if name.startswith("delta.constraints."))
    for column in table.schema().fields:
        yield from (f"{_COLUMN_RULES[name]}, {column.name}" for name in column.metadata if name in _COLUMN_RULES)


def without_nulls(table: Any, rows: DataFrame) -> DataFrame:
    """Rows that fail the batch if one has NULL where the table must not have it."""
    for column in table.schema().fields:
        if not column.nullable:
            reason = F.raise_error(F.lit(f"a row has NULL in {column.name}, which the table does not allow"))
            rows = rows.withColumn(column.name, F.coalesce(F.col(quoted(column.name)), reason))
    return rows

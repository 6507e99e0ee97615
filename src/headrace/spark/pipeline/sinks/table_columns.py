"""Which columns the files of a table can have: told before anything runs, since Spark itself tells when it writes.

Spark's own writers say which types they take. On Spark Connect they cannot be asked, and the first batch fails instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from headrace.core.errors import InvalidInput

_FORMATS: Final = "org.apache.spark.sql.execution.datasources"
_WRITERS: Final = {
    "csv": "csv.CSVFileFormat",
    "json": "json.JsonFileFormat",
    "orc": "orc.OrcFileFormat",
    "parquet": "parquet.ParquetFileFormat",
    "text": "text.TextFileFormat",
}


def check_columns(rows: DataFrame, file_format: str, partition_by: Sequence[str], field: str) -> None:
    """Raise for rows that cannot be written to files of a format, in directories by `partition_by`."""
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

"""A Delta table as source: `deltalake` tells which files the newest version has, and Spark's own reader reads them.

So a pipeline reads what a pipeline writes without Delta's Java. It sees the version that is the newest when the
DataFrame is built, and needs its files for as long as it runs: Delta keeps those that a merge replaced for a week.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidInput
from headrace.extras import missing
from headrace.spark.pipeline.definition.description import FormatSource
from headrace.spark.pipeline.frame.object_store import object_store, store_errors

# What a table may need of its readers and plain files still say everything.
_READER_FEATURES: Final = frozenset({"timestampNtz"})


def import_deltalake(field: str) -> Any:
    """The package that reads and writes the logs of Delta tables."""
    try:
        import deltalake
    except ImportError as error:
        raise InvalidInput(field, "delta", missing("delta", error)) from None
    return deltalake


def open_delta(url: str, options: dict[str, str] | None = None) -> Any:
    """The newest version of a table, None if there is none; options: those of its object store."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    if options is None:
        return DeltaTable(url) if Path(url).is_dir() and DeltaTable.is_deltatable(url) else None
    try:
        # To ask first whether it is a table would hold up all threads of this process until the store answers.
        return DeltaTable(url, storage_options=options)
    except TableNotFoundError:
        return None


def read_delta(spark: SparkSession, source: FormatSource) -> DataFrame:
    """The rows of a table's newest version."""
    import_deltalake("source.format")
    assert source.path is not None
    store = object_store(spark, source.path)
    options = None if store is None else store.delta_options(is_quick=True)
    with store_errors("source", source.path):
        table = open_delta(source.path, options)
    if table is None:
        raise InvalidInput("source.path", source.path, "there is no Delta table: name its directory")
    _check_readable(table, source.path)
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    base = source.path if store is not None else str(Path(source.path).absolute())
    reader = spark.read.schema(schema).option("basePath", base)
    return reader.parquet(*files).select(*(f"`{name}`" for name in schema.names))


def _check_readable(table: Any, path: str) -> None:
    """Some tables keep a part of what they say beside their files, such as which rows were deleted."""
    needed = set(table.protocol().reader_features or []) - _READER_FEATURES
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        needed.add("columnMapping")
    if needed:
        rule = (
            f"it uses {', '.join(sorted(needed))}, which only Delta's own reader understands: turn that off in the "
            "table, or copy it"
        )
        raise InvalidInput("source.path", path, rule)

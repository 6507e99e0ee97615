"""Batch reads of topics: from one position to another, both decided when the query is planned.

Readers take no filters: Spark keeps one reader for all queries over one `load()`, so a reader that one query narrowed
would give the others too few rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidInput
from headrace.core.positions import EARLIEST, LATEST
from headrace.spark.options import ReadOptions, default_start
from headrace.spark.reader.data_loss import kept_of
from headrace.spark.reader.split_reader import SplitReader
from headrace.spark.reader.splits import Bounds, Ranges, Split, ranges_between, split
from headrace.spark.schema import SPLIT_SCHEMA, is_same, read_schema


class RowReader(Protocol):
    """What tasks read with."""

    @property
    def schema(self) -> pa.Schema: ...

    def read(self, split: Split) -> Iterator[pa.RecordBatch]: ...


def row_reader(options: ReadOptions) -> tuple[RowReader, StructType]:
    """What tasks read with, and the columns of its rows; asks for the schema of the topics if fields are wanted."""
    if options.rows_are_splits or not options.is_typed:
        schema = SPLIT_SCHEMA if options.rows_are_splits else read_schema(options.columns)
        return split_reader(options, schema), schema
    # It takes a while to import, which others need not wait for.
    from headrace.spark.reader.tables.typed_rows import TypedReader, typed_rows

    typed = typed_rows(options)
    return TypedReader(split_reader(options, read_schema(typed.needed)), typed), typed.schema


def checked_reader(options: ReadOptions, schema: StructType) -> RowReader:
    """The same where Spark gives the columns, which must be those."""
    reader, wanted = row_reader(options)
    if not is_same(schema, wanted):
        rule = "it is fixed: omit it, or choose `columns`"
        if options.is_typed:
            rule = f"the schema of the topic's values has changed since the DataFrame was made, or {rule}"
        raise InvalidInput("schema", schema.simpleString()[:100], rule)
    return reader


def split_reader(options: ReadOptions, schema: StructType) -> SplitReader:
    """What tasks read columns of messages with."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    return SplitReader(
        options.connection,
        arrow_schema,
        options.decode,
        options.fail_on_data_loss,
        options.on_undecodable,
    )


def plan_batch(options: ReadOptions) -> list[Split]:
    """The splits of everything between the start and the end, as they are now."""
    return plan_splits(options, planned_ranges(options, options.subscription.look()))


def planned_ranges(options: ReadOptions, present: Bounds) -> Ranges:
    """What is between the start and the end, of what topics have now; raises for what was deleted."""
    topics = options.subscription
    start = topics.offsets_at("startingOffsets", default_start(options, False), present, EARLIEST)
    end = topics.offsets_at("endingOffsets", options.end, present, LATEST)
    ranges, losses = kept_of(ranges_between(start, end), present)
    losses.face(options.fail_on_data_loss)
    return ranges


def plan_splits(options: ReadOptions, ranges: Ranges) -> list[Split]:
    """Ranges as tasks."""
    return split(ranges, options.split_messages_max, options.partitions_min)


class BatchReader(DataSourceReader):
    """Reads a range of each partition."""

    def __init__(self, options: ReadOptions, reader: RowReader) -> None:
        self._options = options
        self._reader = reader

    def partitions(self) -> list[InputPartition]:
        """The splits; called once, when the query is planned."""
        return list(plan_batch(self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a split; where there is none to read Spark gives one of its own."""
        return self._reader.read(partition) if isinstance(partition, Split) else iter(())

"""DataFrames of topics that are faster than the data source: `headrace.spark.read` and `headrace.spark.read_stream`.

    driver  plan the splits ─► one row per split, each in a Spark partition of its own
    task    row ─► mapInArrow ─► fetch the split ─► Arrow batches

Splits, options and rows are those of the data source. The difference is in Spark's Java: it copies rows of a Python
source once more than rows that come out of `mapInArrow`.

The rows of a batch are the numbers of splits that are planned when `read` is called. The rows of a stream come from the
data source itself, which plans micro-batches as always, but gives one row per split. Offsets, limits, groups and
checkpoints are the same: a query may change from one way to the other. Two things differ. Spark's `numInputRows` counts
splits, so `observe` sums up the messages that the splits have, for `headrace.spark.messages_read`: to count the rows
themselves was a tenth of what Java did. And a task has two Python workers, one that gives the split and one that
fetches it, so small micro-batches gain nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import coalesce, lit
from pyspark.sql.functions import sum as sum_of
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidInput
from headrace.spark.options import ReadOptions, check_batch, check_stream, read_options
from headrace.spark.progress import MESSAGES, OBSERVED
from headrace.spark.reader.batch_reader import RowReader, plan_batch, row_reader
from headrace.spark.reader.splits import Split, unpacked_splits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Fetch = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def read(spark: SparkSession, topics: str | Sequence[str] | None = None, **options: Any) -> DataFrame:
    """The messages of topics as they are now; options are those of the data source, with values of Python.

    The driver asks the broker when this is called, so it must reach it; with Spark Connect that is the client.
    """
    named = {} if topics is None else {"topic": topics}
    return read_frame(spark, {name: option_text(value) for name, value in {**named, **options}.items()})


def read_frame(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The same with options as text."""
    parsed = batch_options(options)
    reader, schema = row_reader(parsed)
    return frame_of(spark, plan_batch(parsed), reader, schema)


def batch_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of a batch of messages."""
    parsed = read_options(options)
    check_batch(parsed)
    if parsed.metadata is not None:
        rule = 'it is read with spark.read.format("headrace")'
        raise InvalidInput("metadata", repr(parsed.metadata), rule)
    return parsed


def frame_of(spark: SparkSession, splits: Sequence[Split], reader: RowReader, schema: StructType) -> DataFrame:
    """The rows of splits."""
    if not splits:
        return spark.createDataFrame([], schema)
    return spark.range(0, len(splits), 1, len(splits)).mapInArrow(_fetching(reader, splits), schema)


def read_stream(spark: SparkSession, topics: str | Sequence[str] | None = None, **options: Any) -> DataFrame:
    """The messages of topics as they arrive; options are those of the data source, with values of Python."""
    named = {} if topics is None else {"topic": topics}
    given = {name: option_text(value) for name, value in {**named, **options}.items()}
    parsed = read_options(given)
    check_stream(parsed)
    reader, schema = row_reader(parsed)
    splits = spark.readStream.format("headrace").options(**{**given, "rowsAreSplits": "true"}).load()
    # A name of its own, so that a query may read several streams.
    counted = splits.observe(f"{OBSERVED}{uuid.uuid4().hex}", coalesce(sum_of(MESSAGES), lit(0)).alias(MESSAGES))
    return counted.mapInArrow(_fetching_rows(reader), schema)


def option_text(value: Any) -> str:
    """A value of Python as an option of Spark."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(str(each) for each in value)
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _fetching(reader: RowReader, splits: Sequence[Split]) -> Fetch:
    """What a task does: fetch the splits whose numbers it is given."""

    def fetch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy():
                yield from reader.read(splits[number])

    return fetch


def _fetching_rows(reader: RowReader) -> Fetch:
    """What a task of a stream does: fetch the splits that its rows are."""

    def fetch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for split in unpacked_splits(batch):
                yield from reader.read(split)

    return fetch

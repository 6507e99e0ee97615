"""The whole history of topics as a batch DataFrame: `headrace.spark.table(spark, "orders")`.

    archive(topic) ──► files ──► Spark's own Parquet reader ──► clipped to the range ──┐
                         └─────► tail ──► splits ──► fetched from the broker ──────────┴──► union

Rows, options and columns are those of `headrace.spark.read`; only the way differs. Filters on time, offset, partition
and key reach the statistics of the Parquet files, since nothing but a projection is above them. Files in which values
have codecs are an exception: their rows go through Python to be decoded, as rows of the broker do, then filtered. So
are files on an object store that this Spark has no file system for: Arrow reads them (`archive_frame`).

The plan is made when this is called. Spark opens the files later: at the latest `archive.stray_seconds` after that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.core.archive.manifest import ArchiveSnapshot
from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.spark.file_systems import missing_file_system, s3a_options
from headrace.spark.options import ReadOptions
from headrace.spark.reader.archive_frame import archive_frame, stored_columns
from headrace.spark.reader.batch_reader import plan_splits, planned_ranges, split_reader
from headrace.spark.reader.frame import batch_options, frame_of, option_text
from headrace.spark.reader.split_reader import SplitReader
from headrace.spark.reader.splits import PartitionKey
from headrace.spark.schema import READ_COLUMNS, read_schema
from headrace.spark.session import is_local
from headrace.tables.files import encoded_files, unreadable, url_of
from headrace.tables.snapshot import TableSnapshot, table_snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_TOPIC: Final = "topic"
# A condition with more terms than this is slower to plan than what it saves.
_TERMS_MAX: Final = 64

logger = logging.getLogger(__name__)


def table(
    spark: SparkSession,
    topics: str | Sequence[str] | None = None,
    *,
    value_schema: str | Mapping[str, Any] | None = None,
    **options: Any,
) -> DataFrame:
    """The whole history of topics as it is now: what is archived from the archive, the rest from the broker.

    Options are those of `headrace.spark.read`. The driver must reach the broker, and driver and executors the archive.
    With a `value_schema`, a JSON Schema, there are columns for the properties of the values, and `value_error`.
    """
    named = {} if topics is None else {"topic": topics}
    parsed = batch_options({name: option_text(value) for name, value in {**named, **options}.items()})
    rows = _frame(spark, parsed, parsed.subscription.archives())
    if value_schema is None:
        return rows
    # Pipelines read tables, so this is imported only where it is needed.
    from headrace.spark.reader.value_columns import with_value_columns

    return with_value_columns(rows, value_schema)


def table_frame(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The same with options as text, and from the broker alone where Spark cannot read the archive."""
    parsed = batch_options(options)
    archives = parsed.subscription.archives()
    if any(_is_on_one_machine(archive) for archive in archives) and not is_local(
        spark.conf.get("spark.master", "") or ""
    ):
        # A directory of the server's machine, and executors on others.
        return _frame(spark, parsed, [without_files(archive) for archive in archives])
    try:
        return _frame(spark, parsed, archives)
    except (InvalidInput, StoreUnavailable) as error:
        logger.warning("the archive cannot be read by Spark, so everything is read from the broker: %s", error)
        return _frame(spark, parsed, [without_files(archive) for archive in archives])


def without_files(archive: ArchiveSnapshot) -> ArchiveSnapshot:
    """As if nothing were archived: the broker has all of it too."""
    return ArchiveSnapshot(archive.topic, archive.topic_id, None, [], {}, archive.offsets)


def _is_on_one_machine(archive: ArchiveSnapshot) -> bool:
    return bool(archive.files) and archive.url is not None and archive.url.startswith("file:")


def _frame(spark: SparkSession, options: ReadOptions, archives: Sequence[ArchiveSnapshot]) -> DataFrame:
    present = {
        PartitionKey(archive.topic_id, archive.topic, partition): bounds
        for archive in archives
        for partition, bounds in sorted(archive.offsets.items())
    }
    ranges = planned_ranges(options, present)
    snapshots = [
        table_snapshot(archive, {of.partition: each for of, each in ranges.items() if of.topic_id == archive.topic_id})
        for archive in archives
    ]
    tail = {
        PartitionKey(snapshot.archive.topic_id, snapshot.archive.topic, partition): bounds
        for snapshot in snapshots
        for partition, bounds in sorted(snapshot.tail.items())
    }
    parts = [part for snapshot in snapshots for part in _archived(spark, options, snapshot)]
    if tail or not parts:
        parts.append(frame_of(spark, options, plan_splits(options, tail)))
    return reduce(DataFrame.unionAll, parts)


def _archived(spark: SparkSession, options: ReadOptions, snapshot: TableSnapshot) -> list[DataFrame]:
    """The rows of the files, by Spark's own reader if it can."""
    if not snapshot.files:
        return []
    try:
        return list(_by_spark(spark, options, snapshot))
    except InvalidInput as missing:
        logger.info("the archive is read by Arrow: %s", missing)
        return [archive_frame(spark, options, snapshot)]


def _by_spark(spark: SparkSession, options: ReadOptions, snapshot: TableSnapshot) -> Iterator[DataFrame]:
    """The rows of the files: of those without codecs as they are, of the others decoded."""
    archive = snapshot.archive
    url = snapshot.url
    needs_decoding = options.decode and "value" in options.columns
    encoded = encoded_files(url, snapshot.files) if needs_decoding else set()
    plain = [file.path for file in snapshot.files if file.path not in encoded]
    if plain:
        rows = _parquet(spark, url, plain, snapshot.clips)
        named = {_TOPIC: F.lit(archive.topic).alias(_TOPIC)}
        yield rows.select(*(named.get(name, F.col(name)) for name in options.columns))
    if encoded:
        schema = read_schema(options.columns)
        rows = _parquet(spark, url, sorted(encoded), snapshot.clips)
        rows = rows.select(*stored_columns(options.columns, with_places=True))
        yield rows.mapInArrow(_decoding(split_reader(options, schema), archive.topic), schema)


def _decoding(reader: SplitReader, topic: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with rows that have codecs."""

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return reader.decoded(topic, batches)

    return decode


def _parquet(spark: SparkSession, url: str, paths: Sequence[str], clips: Mapping[int, tuple[int, int]]) -> DataFrame:
    """The rows of files within the bounds."""
    schema = read_schema([name for name in READ_COLUMNS if name != _TOPIC])
    # Spark's name of the file system, and a path of ours has no columns in its directories.
    urls = [_spark_url(url_of(url, path)) for path in paths]
    try:
        reader = spark.read.schema(schema).options(recursiveFileLookup="true", **s3a_options(url))
        rows = reader.parquet(*urls)
    except (PySparkException, Py4JJavaError) as error:
        missing = missing_file_system("archive.url", urls[0], error)
        if missing is not None:
            raise missing from None
        if isinstance(error, AnalysisException):
            raise unreadable(url, paths[0], OSError(str(error).splitlines()[0])) from None
        raise
    return rows.where(_within(clips)) if clips else rows


def _spark_url(url: str) -> str:
    return f"s3a:{url.removeprefix('s3:')}" if url.startswith("s3:") else url


def _within(clips: Mapping[int, tuple[int, int]]) -> Column:
    """The condition that a row is within the bounds of its partition; partitions without bounds are whole."""
    partition, offset = F.col("partition"), F.col("offset")
    if len(clips) <= _TERMS_MAX:
        return reduce(
            lambda so_far, term: so_far & term,
            (
                (partition != number) | ((offset >= start) & (offset < end))
                for number, (start, end) in sorted(clips.items())
            ),
        )
    starts, ends = (
        F.create_map(*(F.lit(each) for number, bounds in clips.items() for each in (number, bounds[place])))
        for place in (0, 1)
    )
    is_after = offset >= F.coalesce(F.element_at(starts, partition), F.lit(0))
    return is_after & (offset < F.coalesce(F.element_at(ends, partition), offset + 1))

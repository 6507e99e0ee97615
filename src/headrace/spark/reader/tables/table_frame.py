"""The whole history of topics as a batch DataFrame: `headrace.spark.table(spark, "orders")`.

    archive(topic) ──► files ──► Spark's own Parquet reader ──► clipped to the range ──┐
                         └─────► tail ──► splits ──► fetched from the broker ──────────┴──► union

Rows, options and columns are those of `headrace.spark.read`; only the way differs. Filters on time, offset, partition
and key reach the statistics of the Parquet files, since nothing but a projection is above them. Files in which values
have codecs are an exception: their rows go through Python to be decoded, as rows of the broker do, then filtered. So do
those of files whose columns of values are not those of the schema that the topic has now, since values are parsed, and
files on an object store that this Spark has no file system for: Arrow reads them (`archive_frame`).

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
from pyspark.sql.types import StructType

from headrace.core.archive.manifest import ArchiveSnapshot
from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.core.values.schema import parse_value_schema
from headrace.spark.file_systems import missing_file_system, s3a_options
from headrace.spark.options import ReadOptions
from headrace.spark.reader.batch_reader import plan_splits, planned_ranges, row_reader, split_reader
from headrace.spark.reader.frame import batch_options, frame_of, option_text, read_frame
from headrace.spark.reader.split_reader import SplitReader
from headrace.spark.reader.splits import PartitionKey
from headrace.spark.reader.tables.archive_frame import archive_frame, stored_columns
from headrace.spark.reader.tables.typed_rows import TypedReader, TypedRows, typed_rows
from headrace.spark.schema import READ_COLUMNS, read_schema
from headrace.spark.session import is_local
from headrace.tables.files import FileKind, files_by_kind, unreadable, url_of
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
    If the topic has a `value_schema`, or one is given here, there are columns for the fields of the values, and
    `value_error`. With `columns` there are those, and no others unless a `value_schema` is given.
    """
    named = {} if topics is None else {"topic": topics}
    parsed = batch_options({name: option_text(value) for name, value in {**named, **options}.items()})
    archives = parsed.subscription.archives()
    if parsed.is_typed:
        raise InvalidInput("values", "'typed'", "a table has all fields of values without it: omit it")
    given = None if value_schema is None else parse_value_schema(value_schema).text
    schemas = {archive.topic: given or (None if "columns" in options else archive.value_schema) for archive in archives}
    _check_types(schemas)
    parts = [
        _frame(spark, parsed, [each for each in archives if schemas[each.topic] == schema], schema)
        for schema in dict.fromkeys(schemas.values()) or [None]
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def _check_types(schemas: Mapping[str, str | None]) -> None:
    """Refuse topics that together would have two columns of one name."""
    known: dict[str, tuple[str, pa.Field]] = {}
    for topic, text in schemas.items():
        for field in () if text is None else parse_value_schema(text).columns():
            other, first = known.setdefault(field.name.lower(), (topic, field))
            if first != field:
                rule = f"it is {field.type} in {topic!r} and {first.type} in {other!r}: give columns=…, or one topic"
                raise InvalidInput("column", repr(field.name), rule)


def table_frame(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The same with options as text, and from the broker alone where Spark cannot read the archive."""
    parsed = batch_options(options)
    if parsed.is_typed and not parsed.all_fields:
        # A value is judged by the fields that are read, and files have none of those that do not fit the whole schema.
        return read_frame(spark, options)
    archives = parsed.subscription.archives()
    text = typed_rows(parsed).text if parsed.is_typed else None
    if any(_is_on_one_machine(archive) for archive in archives) and not is_local(
        spark.conf.get("spark.master", "") or ""
    ):
        # A directory of the server's machine, and executors on others.
        return _frame(spark, parsed, [without_files(archive) for archive in archives], text)
    try:
        return _frame(spark, parsed, archives, text)
    except (InvalidInput, StoreUnavailable) as error:
        logger.warning("the archive cannot be read by Spark, so everything is read from the broker: %s", error)
        return _frame(spark, parsed, [without_files(archive) for archive in archives], text)


def without_files(archive: ArchiveSnapshot) -> ArchiveSnapshot:
    """As if nothing were archived: the broker has all of it too."""
    return ArchiveSnapshot(archive.topic, archive.topic_id, None, [], {}, archive.offsets, archive.value_schema)


def _is_on_one_machine(archive: ArchiveSnapshot) -> bool:
    return bool(archive.files) and archive.url is not None and archive.url.startswith("file:")


def _frame(
    spark: SparkSession, options: ReadOptions, archives: Sequence[ArchiveSnapshot], value_schema: str | None = None
) -> DataFrame:
    typed = None if value_schema is None else TypedRows.with_all_fields(options.columns, value_schema)
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
    parts = [part for snapshot in snapshots for part in _archived(spark, options, snapshot, typed)]
    if tail or not parts:
        reader, schema = (
            row_reader(options)
            if typed is None
            else (TypedReader(split_reader(options, read_schema(typed.needed)), typed), typed.schema)
        )
        parts.append(frame_of(spark, plan_splits(options, tail), reader, schema))
    return reduce(DataFrame.unionAll, parts)


def _archived(
    spark: SparkSession, options: ReadOptions, snapshot: TableSnapshot, typed: TypedRows | None
) -> list[DataFrame]:
    """The rows of the files, by Spark's own reader if it can."""
    if not snapshot.files:
        return []
    try:
        return list(_by_spark(spark, options, snapshot, typed))
    except InvalidInput as missing:
        logger.info("the archive is read by Arrow: %s", missing)
        return [archive_frame(spark, options, snapshot, typed)]


def _by_spark(
    spark: SparkSession, options: ReadOptions, snapshot: TableSnapshot, typed: TypedRows | None
) -> Iterator[DataFrame]:
    """The rows of the files, by kind: as they are, or through Python where values must be decoded or parsed."""
    archive = snapshot.archive
    url = snapshot.url
    decodes = options.decode and "value" in options.columns
    if decodes or typed is not None:
        by_kind = files_by_kind(url, snapshot.files)
    else:
        by_kind = {FileKind(False, None): [file.path for file in snapshot.files]}
    plain: list[str] = []
    worked: list[str] = []
    for kind, paths in by_kind.items():
        is_plain = not (decodes and kind.has_codecs) and (typed is None or kind.value_schema == typed.text)
        (plain if is_plain else worked).extend(paths)
    if plain:
        rows = _parquet(spark, url, plain, snapshot.clips, typed)
        names = [*options.columns, *(() if typed is None else typed.names)]
        named = {_TOPIC: F.lit(archive.topic).alias(_TOPIC)}
        yield rows.select(*(named[name] if name in named else F.col(f"`{name.replace('`', '``')}`") for name in names))
    if worked:
        needed = read_schema(options.columns if typed is None else typed.needed)
        rows = _parquet(spark, url, sorted(worked), snapshot.clips)
        rows = rows.select(*stored_columns(needed.names, with_places=True))
        work = _decoding(split_reader(options, needed), archive.topic, typed)
        yield rows.mapInArrow(work, needed if typed is None else typed.schema)


def _decoding(
    reader: SplitReader, topic: str, typed: TypedRows | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with rows that have codecs, or whose values are parsed."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoded = reader.decoded(topic, batches)
        return decoded if typed is None else typed.parse(decoded)

    return work


def _parquet(
    spark: SparkSession,
    url: str,
    paths: Sequence[str],
    clips: Mapping[int, tuple[int, int]],
    typed: TypedRows | None = None,
) -> DataFrame:
    """The rows of files within the bounds."""
    schema = read_schema([name for name in READ_COLUMNS if name != _TOPIC])
    if typed is not None:
        schema = StructType([*schema.fields, *typed.value_fields.fields])
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

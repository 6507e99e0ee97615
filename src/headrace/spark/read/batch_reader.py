"""Batch reads of a topic: from one position to another, both decided when the query is planned.

Filters on partition, offset and timestamp narrow what is read, if enabled and if Spark offers them. Spark still applies
them itself, so narrowing may be coarse.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.core.positions import EARLIEST, LATEST, moment, resolve
from headrace.spark.options import ReadOptions, default_start
from headrace.spark.read.data_loss import kept_of
from headrace.spark.read.filters import Bounds, narrowed
from headrace.spark.read.split_reader import SplitReader
from headrace.spark.read.splits import Split, ranges_between, split

_PUSHING_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def split_reader(options: ReadOptions, schema: StructType) -> SplitReader:
    """What tasks read with."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    return SplitReader(
        options.connection,
        options.topic,
        arrow_schema,
        options.decode,
        options.fail_on_data_loss,
        options.on_undecodable,
    )


class BatchReader(DataSourceReader):
    """Reads a range of each partition."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._reader = split_reader(options, schema)
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        """The splits; called once, when the query is planned."""
        options, topic = self._options, self._options.topic
        call = options.connection.call

        def offset_at(partition: int, time_us: int) -> int:
            return call(lambda client: client.offset_at(topic, partition, moment(time_us)))

        present = call(lambda client: client.offsets(topic))
        start = resolve("startingOffsets", default_start(options, False), present, EARLIEST, offset_at)
        end = resolve("endingOffsets", options.end, present, LATEST, offset_at)
        ranges, losses = kept_of(narrowed(ranges_between(start, end), self._bounds, offset_at), present)
        losses.face(topic, options.fail_on_data_loss)
        return list(split(ranges, options.split_messages_max, options.partitions_min))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a split; where there is none to read Spark gives one of its own."""
        return self._reader.read(partition) if isinstance(partition, Split) else iter(())


class FilteringBatchReader(BatchReader):
    """One that Spark may offer filters to."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow what is read; all filters are given back, so that Spark applies them to what is left."""
        self._bounds = Bounds.of(filters)
        return filters


def batch_reader(options: ReadOptions, schema: StructType) -> BatchReader:
    """A reader that takes filters only if it is told to, and where Spark is about to offer some.

    It must be told, since Spark keeps one reader for all queries over a `load()`: narrowed for one of them, it would
    give the others too few rows. Spark refuses readers that take filters as long as its setting for it is off, and
    does not tell the setting. But with the setting on, readers are made in the Python worker whose only work is to
    offer filters.
    """
    takes_filters = options.push_filters and _is_offering_filters()
    return (FilteringBatchReader if takes_filters else BatchReader)(options, schema)


def _is_offering_filters() -> bool:
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING_WORKER in sys.modules or getattr(main, "name", None) == _PUSHING_WORKER

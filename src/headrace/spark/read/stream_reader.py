"""Streaming reads of a topic: what each micro-batch reads, and the progress of the query.

One process of Spark's driver asks for offsets; tasks read splits in processes of their own, with a copy of this object.

    latestOffset(start)     commit `start` for the group ─► wait for messages, at most half a second ─► limits ─► end
    partitions(start, end)  deleted messages are lost ─► splits
    read(split)             in a task

Spark asks again ten milliseconds after an answer without new messages. The wait makes that two requests a second, and
still wakes at once when messages arrive. `start` is the end of the last batch that Spark finished, so the group's
progress is correct then; Spark calls `commit` only with the next batch, which on a quiet topic may never happen.

Partitions that were added later are found at the next call, and start at their oldest message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.core.errors import OffsetOutOfRange
from headrace.core.limits import FETCH_BYTES_MAX
from headrace.core.positions import EARLIEST, Bounds, moment, resolve
from headrace.spark.options import ReadOptions, default_start
from headrace.spark.read import stream_offsets
from headrace.spark.read.batch_reader import split_reader
from headrace.spark.read.data_loss import DataLoss, kept_of
from headrace.spark.read.group_progress import GroupProgress
from headrace.spark.read.rate_limit import waiting, within_bytes, within_messages
from headrace.spark.read.splits import Ranges, Split, split

_WAIT_SECONDS: Final = 0.5

logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver, reads splits in tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._topic = options.topic
        self._reader = split_reader(options, schema)
        self._progress = GroupProgress(options)
        # Where an available-now query ends; none in any other query.
        self._target: dict[int, int] | None = None
        self._newest: dict[int, int] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query starts."""
        call = self._options.connection.call

        def offset_at(partition: int, time_us: int) -> int:
            return call(lambda client: client.offset_at(self._topic, partition, moment(time_us)))

        present = call(lambda client: client.offsets(self._topic))
        place = default_start(self._options, is_stream=True)
        return self._encode(resolve("startingOffsets", place, present, EARLIEST, offset_at))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that Spark hands back to `latestOffset`, unless a query is to read everything at once."""
        if self._options.trigger_messages_max is not None:
            return ReadMaxRows(self._options.trigger_messages_max)
        if self._options.trigger_bytes_max is not None:
            return ReadMaxBytes(self._options.trigger_bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end at the current end of the topic."""
        present = self._options.connection.call(lambda client: client.offsets(self._topic))
        self._target = {partition: end for partition, (_, end) in present.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends; `start` itself if there is nothing new."""
        known = self._decode(start)
        present = self._look(known)
        self._newest = {partition: end for partition, (_, end) in present.items()}
        self._face_losses(known, present)
        self._report(known)
        begin = {partition: _beginning(known.get(partition), bound) for partition, bound in present.items()}
        if self._target is None:
            end = self._newest
        else:
            end = {partition: max(begin[partition], self._target.get(partition, 0)) for partition in present}
        planned = self._limited(waiting(begin, end), limit)
        return self._encode({partition: planned.get(partition, (0, begin[partition]))[1] for partition in present})

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the topic when it was last looked at, for Spark's progress reports."""
        return self._encode(self._newest) if self._newest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits of a micro-batch; the same again when it is done again after a restart."""
        known, stop = self._decode(start), self._decode(end)
        present = self._options.connection.call(lambda client: client.offsets(self._topic))
        nothing = (0, 0)
        begin = {partition: _beginning(known.get(partition), present.get(partition, nothing)) for partition in stop}
        ranges, losses = kept_of(waiting(begin, stop), present)
        losses.face(self._topic, self._options.fail_on_data_loss)
        return list(split(ranges, self._options.split_messages_max, self._options.partitions_min))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a split."""
        return self._reader.read(partition) if isinstance(partition, Split) else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not ask for earlier offsets again."""
        self._report(self._decode(end))

    def _report(self, offsets: dict[int, int]) -> None:
        """Tell the group how far the query is, as far as the topic has it: one that was made anew may be shorter."""
        newest = self._newest
        self._progress.report(
            {partition: min(offset, newest[partition]) for partition, offset in offsets.items() if partition in newest}
        )

    def _look(self, known: dict[int, int]) -> Bounds:
        """The bounds of the topic now, or a little later if there is nothing new now."""
        wait_seconds = _WAIT_SECONDS if self._target is None else 0.0
        return self._options.connection.call(lambda client: client.await_offsets(self._topic, known, wait_seconds))

    def _face_losses(self, known: dict[int, int], present: Bounds) -> None:
        """Raise at once if messages are lost. With failOnDataLoss=false the batch that skips them logs it."""
        lost = {}
        for partition, offset in known.items():
            oldest, newest = present.get(partition, (0, 0))
            if offset > newest:
                # Another topic has the name now: nobody knows what became of the rest.
                lost[partition] = (newest, offset)
            elif offset < oldest and self._options.fail_on_data_loss:
                lost[partition] = (offset, oldest)
        DataLoss(lost).face(self._topic, self._options.fail_on_data_loss)

    def _limited(self, ranges: Ranges, limit: ReadLimit) -> Ranges:
        if isinstance(limit, ReadAllAvailable) or not ranges:
            return ranges
        messages_max, bytes_max = self._options.trigger_messages_max, self._options.trigger_bytes_max
        if messages_max is not None:
            ranges = within_messages(ranges, messages_max)
        if bytes_max is not None:
            ranges = within_bytes(waiting_only(ranges), bytes_max, self._messages_within)
        return ranges

    def _messages_within(self, partition: int, start: int, end: int, bytes_max: int) -> int:
        """How many messages are within so many bytes: the broker cuts batches by bytes, and sends only offsets."""
        client, left, count = self._options.connection.client(), bytes_max, 0
        batches = client.scan(
            self._topic,
            partition,
            start,
            end,
            columns=["offset"],
            max_bytes=min(left, FETCH_BYTES_MAX),
            timeout_seconds=self._options.connection.timeout_seconds,
        )
        try:
            for batch in batches:
                count += batch.num_rows
                left -= FETCH_BYTES_MAX
                if left <= 0:
                    break
        except OffsetOutOfRange as gone:
            # Retention took them. They weigh nothing, and the batch that skips them says so.
            return max(count, min(gone.start, end) - start)
        return count

    def _encode(self, offsets: dict[int, int]) -> dict[str, Any]:
        return stream_offsets.encode(self._topic, offsets)

    def _decode(self, given: dict[str, Any]) -> dict[int, int]:
        return stream_offsets.decode(self._topic, given)


def _beginning(known: int | None, bound: tuple[int, int]) -> int:
    """Where a partition goes on: where the query is, or at the oldest message of one that is new or was made anew."""
    oldest, newest = bound
    return oldest if known is None or known > newest else known


def waiting_only(ranges: Ranges) -> Ranges:
    """The ranges that have anything in them."""
    return {partition: (start, end) for partition, (start, end) in ranges.items() if start < end}

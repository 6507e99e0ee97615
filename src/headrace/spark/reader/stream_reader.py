"""Streaming reads of topics: what each micro-batch reads, and the progress of the query.

One process of Spark's driver asks for offsets; tasks read splits in processes of their own, with a copy of this object.

    latestOffset(start)     commit `start` for the group ─► wait for messages, at most half a second ─► limits ─► end
    partitions(start, end)  deleted messages are lost ─► splits
    read(split)             in a task

Spark asks again ten milliseconds after an answer without new messages. The wait makes that two requests a second, and
still wakes at once when messages arrive. `start` is the end of the last batch that Spark finished, so the group's
progress is correct then; Spark calls `commit` only with the next batch, which on a quiet topic may never happen.

Topics and partitions that were added later are found at the next call, and start at their oldest message. A topic
that was deleted is data loss, also if another one has its name now: offsets carry the id of their topic. With
failOnDataLoss=false the query continues without it, and reads it again if it is created again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
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

from headrace.client import Client
from headrace.core.errors import InvalidInput, PartitionNotFound, TopicNotFound
from headrace.core.names import topic_key
from headrace.core.positions import EARLIEST
from headrace.spark.options import ReadOptions, default_start
from headrace.spark.reader import stream_offsets
from headrace.spark.reader.batch_reader import RowReader
from headrace.spark.reader.data_loss import DataLoss, face_deleted, kept_of
from headrace.spark.reader.group_progress import GroupProgress
from headrace.spark.reader.rate_limit import Shares, waiting, within_bytes, within_messages
from headrace.spark.reader.splits import Bounds, Offsets, PartitionKey, Ranges, Split, packed_split, split
from headrace.spark.reader.topic_selection import DELETED, by_topic

_WAIT_SECONDS: Final = 0.5

logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver, reads splits in tasks."""

    def __init__(self, options: ReadOptions, reader: RowReader, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._topics = options.subscription
        self._reader = reader
        self._clock = clock
        self._progress: dict[int, GroupProgress] = {}
        # Where an available-now query ends; none in any other query.
        self._target: dict[PartitionKey, int] | None = None
        self._newest: dict[PartitionKey, int] = {}
        # Since when messages wait that are too few for a batch.
        self._few_since: float | None = None
        # Named topics that did not exist when they were last looked at.
        self._missing: set[str] = set()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query starts."""
        place = default_start(self._options, is_stream=True)
        return stream_offsets.encode(self._topics.offsets_at("startingOffsets", place, self._topics.look(), EARLIEST))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that Spark hands back to `latestOffset`, unless a query is to read everything at once."""
        if self._options.trigger_messages_max is not None:
            return ReadMaxRows(self._options.trigger_messages_max)
        if self._options.trigger_bytes_max is not None:
            return ReadMaxBytes(self._options.trigger_bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end at the current end of the topics."""
        self._target = _ends(self._topics.look(may_lack=True))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends; `start` itself if there is nothing new."""
        known = stream_offsets.decode(start)
        present = self._look(known)
        known = _identified(known, present)
        self._newest = _ends(present)
        self._face_losses(known, present)
        self._face_missing(present)
        begin = {place: _beginning(known.get(place), bound) for place, bound in present.items()}
        self._report(begin)
        if self._target is None:
            end = self._newest
        else:
            end = {place: max(begin[place], self._target.get(place, 0)) for place in present}
        planned = self._limited(self._enough(waiting(begin, end)), limit)
        reached = {place: planned.get(place, (0, begin[place]))[1] for place in present}
        # As it came: Spark compares texts, and a checkpoint may be of an earlier version.
        return start if reached == known else stream_offsets.encode(reached)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the topics when they were last looked at, for Spark's progress reports."""
        return stream_offsets.encode(self._newest) if self._newest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits of a micro-batch; the same again when it is done again after a restart."""
        present = self._topics.look(may_lack=True)
        known = _identified(stream_offsets.decode(start), present)
        stop = _identified(stream_offsets.decode(end), present)
        begin = {place: _beginning(known.get(place), present.get(place, (0, 0))) for place in stop}
        ranges, losses = kept_of(waiting(begin, stop), present)
        losses.face(self._options.fail_on_data_loss)
        return list(split(ranges, self._options.split_messages_max, self._options.partitions_min))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a split."""
        return self._reader.read(partition) if isinstance(partition, Split) else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not ask for earlier offsets again."""
        self._report(stream_offsets.decode(end))

    def _report(self, offsets: Offsets) -> None:
        """Tell the groups how far the query is, as far as the topics have it: a restored one may be shorter."""
        if self._options.group is None:
            return
        newest = self._newest
        for topic_id, places in by_topic(place for place in offsets if place in newest).items():
            if topic_id not in self._progress:
                self._progress[topic_id] = GroupProgress(self._options, places[0].topic)
            self._progress[topic_id].report({p.partition: min(offsets[p], newest[p]) for p in places})

    def _look(self, known: Offsets) -> dict[PartitionKey, tuple[int, int]]:
        """The bounds of the topics now, or a little later if there is nothing new now."""
        if self._target is not None:
            return self._topics.look(may_lack=True)
        # Messages that are too few for a batch are not new.
        seen = known if self._few_since is None else self._newest
        # One topic is watched until there are news. Of several only one can be: they are looked at first.
        if len(self._topics.topics) != 1:
            present = self._topics.look(may_lack=True)
            if _ends(present) != _identified(seen, present):
                return present
        self._topics.wait(seen, _WAIT_SECONDS)
        return self._topics.look(may_lack=True)

    def _face_losses(self, known: Offsets, present: Bounds) -> None:
        """Raise at once if messages are lost. With failOnDataLoss=false the batch that skips them logs it."""
        fails = self._options.fail_on_data_loss
        names = {topic_key(place.topic) for place in present}
        ids = {place.topic_id for place in present}
        lost = {}
        for topic_id, places in by_topic(known).items():
            topic = places[0].topic
            if not self._topics.selects(topic):
                rule = "the query does not read it: read it too, or start with a new checkpoint"
                raise InvalidInput("checkpoint", f"of topic {topic!r}", rule)
            if topic_id not in ids:
                face_deleted(topic, topic_key(topic) in names, fails)
                continue
            for place in places:
                oldest, newest = present.get(place, (0, 0))
                if known[place] > newest:
                    # The store was restored: nobody knows what became of the rest.
                    lost[place] = (newest, known[place])
                elif known[place] < oldest and fails:
                    lost[place] = (known[place], oldest)
        DataLoss(lost).face(fails)

    def _face_missing(self, present: Bounds) -> None:
        """Raise for a named topic that does not exist. With failOnDataLoss=false log it once, until it exists."""
        names = {topic_key(place.topic) for place in present}
        missing = {topic for topic in self._topics.topics if topic_key(topic) not in names}
        for topic in sorted(missing - self._missing):
            if self._options.fail_on_data_loss:
                raise TopicNotFound(topic)
            logger.warning("topic %r does not exist: the query continues without it until it is created", topic)
        self._missing = missing

    def _enough(self, ranges: Ranges) -> Ranges:
        """The unread ranges, or none while there are too few messages and they do not wait too long."""
        least = self._options.trigger_messages_min
        total = sum(end - start for start, end in ranges.values())
        if least is None or self._target is not None or total == 0 or total >= least:
            self._few_since = None
            return ranges
        now = self._clock()
        since = self._few_since = now if self._few_since is None else self._few_since
        if now - since < self._options.trigger_delay_seconds:
            return {}
        self._few_since = None
        return ranges

    def _limited(self, ranges: Ranges, limit: ReadLimit) -> Ranges:
        if isinstance(limit, ReadAllAvailable) or not ranges:
            return ranges
        messages_max, bytes_max = self._options.trigger_messages_max, self._options.trigger_bytes_max
        if messages_max is not None:
            ranges = within_messages(ranges, messages_max)
        if bytes_max is not None:
            ranges = within_bytes(waiting_only(ranges), bytes_max, self._offsets_within)
        return ranges

    def _offsets_within(self, shares: Shares) -> Offsets:
        """Up to which offset each partition has so many bytes: one question for each topic."""
        stops: dict[PartitionKey, int] = {}
        for places in by_topic(shares).values():
            asked = {place.partition: shares[place] for place in places}
            try:
                found = self._options.connection.call(
                    partial(Client.offsets_within, topic=places[0].topic, ranges=asked)
                )
            except (PartitionNotFound, *DELETED):
                # What was deleted weighs nothing, and the batch that skips it says so.
                found = {}
            stops |= {place: found.get(place.partition, shares[place][1]) for place in places}
        return stops


class SplitStream(StreamReader):
    """The same micro-batches, with one row for each split: what `frame.read_stream` fetches in `mapInArrow`."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The split itself."""
        if isinstance(partition, Split):
            yield packed_split(partition, self._reader.schema)


def _ends(bounds: Bounds) -> dict[PartitionKey, int]:
    return {place: end for place, (_, end) in bounds.items()}


def _identified(known: Offsets, present: Bounds) -> dict[PartitionKey, int]:
    """Offsets with the ids of the topics that have their names now, where a checkpoint of version 1 has none."""
    if all(place.topic_id != stream_offsets.UNKNOWN_ID for place in known):
        return dict(known)
    named: Mapping[str, PartitionKey] = {topic_key(place.topic): place for place in present}
    return {
        now._replace(partition=place.partition) if (now := named.get(topic_key(place.topic))) is not None else place: at
        for place, at in known.items()
    }


def _beginning(known: int | None, bound: tuple[int, int]) -> int:
    """Where a partition continues: where the query is, or at the oldest message of one that is new or shorter now."""
    oldest, newest = bound
    return oldest if known is None or known > newest else known


def waiting_only(ranges: Ranges) -> Ranges:
    """The ranges that have anything in them."""
    return {place: (start, end) for place, (start, end) in ranges.items() if start < end}

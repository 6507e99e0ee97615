"""Retention: drops the oldest segments of a topic.

First without a lock: most runs find nothing to drop. Then briefly under the topic's row lock, with a short lock
timeout: the positions of important groups are read there, so that no group can move back below the new start meanwhile.
The tables themselves are dropped after that, without the row lock.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from headrace.core.errors import StoreUnavailable
from headrace.core.hashes.columns import Int64s
from headrace.core.topics.offsets import widened
from headrace.core.topics.retention import Sightings, droppable, should_complete
from headrace.core.topics.settings import TopicSettings
from headrace.storage.catalog import TopicRecord
from headrace.storage.postgres.log import topic_row
from headrace.storage.postgres.log.segments import (
    SegmentTable,
    begin_segment,
    drop_segment,
    is_full,
    left_to_drop,
    look,
    pieces_of,
    segments_of,
)
from headrace.storage.postgres.log.topic_row import TopicRow
from headrace.storage.postgres.pool import Connection, ConnectionPool

# Publishers wait while the row is locked, and readers queue behind a pending DROP TABLE.
SHORT_WAIT: Final = "SET LOCAL lock_timeout = '1s'"
_HELD: Final = """
SELECT place, min(coalesce(queueoffset, 0))
FROM all_groups CROSS JOIN generate_series(0, %s - 1) AS place
LEFT JOIN all_consumers
    ON all_consumers.topicid = all_groups.topicid AND all_consumers.groupname = all_groups.groupname
        AND all_consumers.partition = place
WHERE all_groups.topicid = %s AND important GROUP BY place"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retention:
    """One run of retention on one topic."""

    connections: ConnectionPool
    topic: TopicRecord
    settings: TopicSettings
    held: Int64s | None
    now_us: int
    sightings: Sightings

    def run(self) -> int:
        """Drop what may be dropped; returns the number of segments."""
        worth_it, left = self.connections.read(self._look)
        dropped = self.connections.run(self._cut) if worth_it else 0
        if dropped or left:
            self._drop_tables()
        return dropped

    def _look(self, connection: Connection) -> tuple[bool, bool]:
        """Whether anything may be dropped, as seen without a lock, and whether tables are left from earlier runs."""
        row, found = look(connection, self.topic)
        worth_it = self._should_begin(row, found, self.held) or self._droppable(found, row, self.held) > 0
        return worth_it, bool(left_to_drop(connection, self.topic.id))

    def _cut(self, connection: Connection) -> int:
        connection.execute(SHORT_WAIT)
        row = topic_row.lock(connection, self.topic)
        found = segments_of(connection, self.topic.id, row)
        held = self._held(connection, row) if self.held is None else self.held
        begins = self._should_begin(row, found, held)
        if begins:
            found = (*found, begin_segment(connection, self.topic.id, row))
        count = self._droppable(found, row, held)
        if count:
            first = found[count]
            row.starts = widened(first.ends, row.partitions)
            row.byte_starts = widened(first.byte_ends, row.partitions)
            row.first_segment = first.number
        if begins or count:
            topic_row.cut(connection, self.topic, row)
        return count

    def _should_begin(self, row: TopicRow, found: Sequence[SegmentTable], held: Int64s | None) -> bool:
        """Whether the last segment must be completed: it could be dropped, or is full or old."""
        last = found[-1]
        if int(row.ends.sum()) <= int(last.ends.sum()):
            return False
        pieces = self.sightings.dated(pieces_of(found, row), self.now_us)
        is_old = should_complete(pieces, last.created_us, self.settings, held, self.now_us, row.deleted_before)
        return is_old or is_full(last, row, self.connections.options)

    def _droppable(self, found: Sequence[SegmentTable], row: TopicRow, held: Int64s | None) -> int:
        pieces = self.sightings.dated(pieces_of(found, row), self.now_us)
        return min(droppable(pieces, self.settings, held, self.now_us, row.deleted_before), len(pieces) - 1)

    def _held(self, connection: Connection, row: TopicRow) -> Int64s | None:
        """The positions of important groups; None if there is no such group."""
        found = connection.execute(_HELD, [row.partitions, self.topic.id]).fetchall()
        if not found:
            return None
        held = np.zeros(row.partitions, np.int64)
        for partition, offset in found:
            held[partition] = offset
        return held

    def _drop_tables(self) -> None:
        for segment in self.connections.read(lambda connection: left_to_drop(connection, self.topic.id)):
            try:
                self.connections.run(partial(self._drop, segment))
            except StoreUnavailable as error:
                logger.info(
                    "cannot delete segment %d of topic %r now, will retry later: %s", segment, self.topic.name, error
                )
                return

    def _drop(self, segment: int, connection: Connection) -> None:
        connection.execute(SHORT_WAIT)
        drop_segment(connection, self.topic.id, segment)

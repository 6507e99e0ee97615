"""The segments of a topic: one table each, in the order of creation.

A segment is created by the commit that finds the last one complete, under the topic's row lock. Dropping has two steps.
The first, under the row lock, moves the start of the topic: no reader uses older segments from then on. The second
drops the tables one by one, without the row lock, because it waits for SQL queries that read them; what it cannot drop
in time is left to the next run. A row of `topic_segments` below the first segment means that its table is still to be
dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from psycopg import sql

from headrace.core.errors import TableMissing
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import LOOKS_MAX
from headrace.core.topics.offsets import widened
from headrace.core.topics.retention import Piece, piece_bytes_max
from headrace.storage.catalog import TopicRecord
from headrace.storage.postgres.log import topic_row
from headrace.storage.postgres.log.topic_row import ROW_BYTES, TopicRow, array
from headrace.storage.postgres.options import PostgresOptions
from headrace.storage.postgres.pool import Connection
from headrace.storage.postgres.sql.schema import make_segment, table_of

_FIND: Final = """SELECT segment, first_commit, created_us, ends, byte_ends FROM topic_segments
    WHERE topicid = %s AND segment >= %s AND segment <= %s ORDER BY segment"""
_BEGIN: Final = "INSERT INTO topic_segments VALUES (%s, %s, %s, %s, %s::bigint[], %s::bigint[])"
_LEFT: Final = """SELECT topic_segments.segment FROM topic_segments JOIN all_topics USING (topicid)
    WHERE topicid = %s AND topic_segments.segment < first_segment ORDER BY 1"""


@dataclass(frozen=True, slots=True)
class SegmentTable:
    """Where a segment starts: its first commit, and each partition's end offset and end of bytes before it."""

    number: int
    first_commit: int
    created_us: int
    ends: Int64s
    byte_ends: Int64s

    def base(self, partition: int) -> int:
        """The first offset of a partition that can be in this segment."""
        return int(self.ends[partition]) if partition < len(self.ends) else 0


Segments = tuple[SegmentTable, ...]


def look(connection: Connection, topic: TopicRecord, known: Segments = ()) -> tuple[TopicRow, Segments]:
    """The row of a topic and its segments, consistent, without a lock."""
    for _ in range(LOOKS_MAX):
        row = topic_row.look(connection, topic)
        found = segments_of(connection, topic.id, row, known)
        # Retention may have run between the two statements.
        if _belong(found, row):
            return row, found
    raise TableMissing(topic.name, f"a row of topic_segments for topic {topic.id}")


def segments_of(connection: Connection, topic_id: int, row: TopicRow, known: Segments = ()) -> Segments:
    """The readable segments; known ones are not queried again."""
    if _belong(known, row):
        return known
    found = connection.execute(_FIND, [topic_id, row.first_segment, row.segment])
    return tuple(
        SegmentTable(number, first_commit, created_us, np.array(ends, np.int64), np.array(byte_ends, np.int64))
        for number, first_commit, created_us, ends, byte_ends in found
    )


def _belong(found: Segments, row: TopicRow) -> bool:
    return bool(found) and found[0].number == row.first_segment and found[-1].number == row.segment


def begin_segment(connection: Connection, topic_id: int, row: TopicRow) -> SegmentTable:
    """Start a new segment after the existing ones."""
    row.segment += 1
    segment = SegmentTable(row.segment, row.commits, row.last_time_us, row.ends.copy(), row.byte_ends.copy())
    make_segment(connection, topic_id, segment.number)
    places = [array(segment.ends), array(segment.byte_ends)]
    connection.execute(_BEGIN, [topic_id, segment.number, segment.first_commit, segment.created_us, *places])
    return segment


def is_full(segment: SegmentTable, row: TopicRow, options: PostgresOptions) -> bool:
    """Whether the next commit must start a new segment."""
    if row.commits == segment.first_commit:
        return False
    size = int(row.byte_ends.sum()) - int(segment.byte_ends.sum())
    bytes_max = piece_bytes_max(row.settings, options.segment_bytes)
    return size >= bytes_max or row.commits - segment.first_commit >= options.segment_commits


def pieces_of(segments: Sequence[SegmentTable], row: TopicRow) -> list[Piece]:
    """The segments as retention sees them."""
    partitions = row.partitions
    begins = [(widened(s.ends, partitions), widened(s.byte_ends, partitions), s.created_us) for s in segments]
    begins.append((row.ends, row.byte_ends, row.last_time_us))
    return [
        Piece(int((after[1] - before[1]).sum()) + ROW_BYTES * int((after[0] - before[0]).sum()), after[2], after[0])
        for before, after in pairwise(begins)
    ]


def left_to_drop(connection: Connection, topic_id: int) -> list[int]:
    """The segments that were dropped but whose tables still exist."""
    return [segment for (segment,) in connection.execute(_LEFT, [topic_id])]


def drop_segment(connection: Connection, topic_id: int, segment: int) -> None:
    """Drop the table of a segment; another server may have done it."""
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table_of(topic_id, segment)))
    connection.execute("DELETE FROM topic_segments WHERE topicid = %s AND segment = %s", [topic_id, segment])

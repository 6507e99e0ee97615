"""The row of a topic: every commit updates it, and servers read it to see whether others committed.

A commit locks it (FOR NO KEY UPDATE, so that rows which refer to the topic do not wait). A reader reads one row, which
is consistent. Arrays may be shorter than the number of partitions: missing elements are zero. If the row does not
exist, this topic was deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from headrace.core.errors import TopicDeleted
from headrace.core.hashes.columns import Int64s
from headrace.core.topics.offsets import widened
from headrace.core.topics.settings import TopicSettings
from headrace.storage.catalog import TopicRecord
from headrace.storage.postgres.pool import Connection
from headrace.storage.ranges import OffsetRange, offsets_past
from headrace.storage.tables import STORE_WIDE_LOCK, take_lock

_SETTINGS: Final = msgspec.json.Decoder(TopicSettings)
_OFFSETS: Final = msgspec.json.Decoder(list[int])
# The overhead of a message: the row's header, the fixed columns and the index entry.
ROW_BYTES: Final = 80

_COLUMNS: Final = (
    "partitions, settings, greatest(last_time_us, created_us), commits, round_robin, starts, ends, byte_starts, "
    "byte_ends, first_segment, segment, sources_commit, writers_commit, payloads_commit, deleted_before"
)
_LOOK: Final = f"SELECT {_COLUMNS} FROM all_topics WHERE topicid = %s"
_LOCK: Final = f"{_LOOK} FOR NO KEY UPDATE"
_BEGIN: Final = f"SELECT {_COLUMNS}, pg_current_xact_id()::text FROM all_topics WHERE topicid = %d FOR NO KEY UPDATE"
_CUT: Final = """
UPDATE all_topics SET first_segment = %s, segment = %s, starts = %s::bigint[], byte_starts = %s::bigint[]
WHERE topicid = %s"""


@dataclass(slots=True)
class TopicRow:
    """A snapshot of the row. `…_commit` is the number after the last commit that changed the table of that name.

    `starts` are those of the first segment, `deleted_before` is the catalog's.
    """

    partitions: int
    settings: TopicSettings
    last_time_us: int
    commits: int
    round_robin: int
    starts: Int64s
    ends: Int64s
    byte_starts: Int64s
    byte_ends: Int64s
    first_segment: int
    segment: int
    sources_commit: int
    writers_commit: int
    payloads_commit: int
    deleted_before: Int64s

    @property
    def offsets(self) -> OffsetRange:
        """Start and end of every partition, as readers see them."""
        return offsets_past(self.starts, self.ends, (), self.deleted_before)

    @property
    def bytes_stored(self) -> int:
        """The approximate size of the messages in the database."""
        messages = int((self.ends - self.starts).sum())
        return int((self.byte_ends - self.byte_starts).sum()) + ROW_BYTES * messages


def look(connection: Connection, topic: TopicRecord) -> TopicRow:
    """The row as it is now, without a lock."""
    return _found(connection, _LOOK, topic)


def lock(connection: Connection, topic: TopicRecord) -> TopicRow:
    """The row, locked until the end of the transaction."""
    return _found(connection, _LOCK, topic)


def begin(connection: Connection, topic: TopicRecord, store_wide: bool) -> tuple[TopicRow, str]:
    """Begin a transaction and lock the row, in one message; returns the row and the number of the transaction."""
    steps = ["BEGIN", take_lock(STORE_WIDE_LOCK)] if store_wide else ["BEGIN"]
    cursor = connection.execute("; ".join([*steps, _BEGIN % topic.id]))
    while cursor.nextset():
        pass
    row = cursor.fetchone()
    if row is None:
        raise TopicDeleted(topic.name)
    return _topic_row(row[:-1]), row[-1]


def moving(topic: TopicRecord, row: TopicRow, messages: int) -> str:
    """The statement that updates the row after a commit."""
    return (
        f"UPDATE all_topics SET tailid = tailid + {messages}, last_time_us = {row.last_time_us}, "
        f"commits = {row.commits}, round_robin = {row.round_robin}, ends = '{array(row.ends)}', "
        f"byte_ends = '{array(row.byte_ends)}', segment = {row.segment}, sources_commit = {row.sources_commit}, "
        f"writers_commit = {row.writers_commit}, payloads_commit = {row.payloads_commit} WHERE topicid = {topic.id}"
    )


def cut(connection: Connection, topic: TopicRecord, row: TopicRow) -> None:
    """Store the start of the topic, and its last segment."""
    parameters = [row.first_segment, row.segment, array(row.starts), array(row.byte_starts), topic.id]
    connection.execute(_CUT, parameters)


def array(values: Int64s) -> str:
    """An array literal: much quicker than value by value."""
    return "{" + ",".join(map(str, values.tolist())) + "}"


def _found(connection: Connection, query: str, topic: TopicRecord) -> TopicRow:
    row = connection.execute(query, [topic.id]).fetchone()
    if row is None:
        raise TopicDeleted(topic.name)
    return _topic_row(row)


def _topic_row(row: Sequence[Any]) -> TopicRow:
    partitions = row[0]
    settings = _SETTINGS.decode(row[1])
    arrays = [widened(values, partitions) for values in row[5:9]]
    deleted_before = np.array(_OFFSETS.decode(row[-1]), np.int64)
    return TopicRow(partitions, settings, *row[2:5], *arrays, *[*row[9:-1], deleted_before])

"""One commit on its way into the database: written as often as it takes to know that it is there.

The connection may be lost at any moment. Before COMMIT nothing was written, and the commit is decided anew: a producer
that was opened meanwhile may have fenced its own. During COMMIT it may have been written or not. The next attempt waits
for the row, which the old transaction holds until its end, and then looks: a row that did not move says no; else the
first message of the commit is there, with this time and from this very transaction, or it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from psycopg import sql

from headrace.core.errors import OutcomeUnknown
from headrace.core.planning import Commit
from headrace.storage.catalog import TopicRecord
from headrace.storage.engine import Decide
from headrace.storage.postgres import head as heads
from headrace.storage.postgres import knowledge, rows
from headrace.storage.postgres.connections import Connection
from headrace.storage.postgres.head import Head
from headrace.storage.postgres.schema import table_of


@dataclass(slots=True)
class Writing:
    """A commit, what is decided of it, and how far it has come."""

    decide: Decide
    store_wide: bool
    commits: Sequence[Commit] | None = None
    base: int = 0
    transaction: str = ""
    is_committing: bool = False
    is_doubtful: bool = False
    is_written: bool = False


def persist(connection: Connection, topic: TopicRecord, head: Head, commits: Sequence[Commit]) -> str:
    """Write the rows and all that follows from them, and move the row on; the number of the transaction."""
    messages = 0
    for commit in commits:
        if commit.rows.num_rows:
            _copy(connection, topic.id, head, commit)
            messages += commit.rows.num_rows
        knowledge.save(connection, topic.id, commit, head)
        head.commits = commit.number + 1
        head.last_time_us = commit.time_us
        head.round_robin = commit.round_robin
    return heads.move(connection, topic, head, messages)


def find_out(connection: Connection, topic: TopicRecord, head: Head, writing: Writing) -> bool:
    """Whether a commit whose COMMIT got no answer is there; the caller holds the row."""
    assert writing.commits
    if head.commits == writing.base:
        return False
    written = [commit.directory for commit in writing.commits if commit.rows.num_rows]
    if not written or head.starts[written[0].partition[0]] > written[0].first_offset[0]:
        raise OutcomeUnknown(topic.name, "the connection was lost in COMMIT, and no trace can tell")
    query = 'SELECT 1 FROM {} WHERE partition = %s AND "offset" = %s AND time_us = %s AND xmin::text = %s'
    time_us = next(commit.time_us for commit in writing.commits if commit.rows.num_rows)
    place = [int(written[0].partition[0]), int(written[0].first_offset[0]), time_us]
    # A row names its transaction by the lower half of the number.
    transaction = str(int(writing.transaction) % (1 << 32))
    return connection.execute(sql.SQL(query).format(table_of(topic.id)), [*place, transaction]).fetchone() is not None


def _copy(connection: Connection, topic_id: int, head: Head, commit: Commit) -> None:
    directory = commit.directory
    sizes = rows.sizes_of(commit.rows)
    columns, data = rows.encode(commit, rows.places_of(commit, sizes, head.byte_ends))
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(table_of(topic_id, head.segment), names)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(rows.HEADER)
        copy.write(data)
        copy.write(rows.TRAILER)
    head.ends[directory.partition] = directory.first_offset + directory.rows
    head.byte_ends[directory.partition] += np.add.reduceat(sizes, directory.first_row)

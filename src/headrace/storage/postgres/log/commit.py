"""One commit to the database: retried until it is known to be written, and in doubt in between.

The connection may be lost at any moment. Before COMMIT nothing was written, and the commit is decided again: a producer
that was opened meanwhile may have fenced its own. During COMMIT the outcome is unknown. The next attempt waits for the
row, which the old transaction holds until its end, and then checks: if the row did not move, it was not written;
otherwise it was, if the first message of the commit exists with this time and from this transaction.

A small commit takes two round trips: one begins the transaction and locks the row, the other has everything that is
written, including COMMIT. Larger commits, and those with attributes, send their rows by COPY in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from psycopg import sql

from headrace.core.errors import OutcomeUnknown
from headrace.core.publish.state import Commit
from headrace.storage.catalog import TopicRecord
from headrace.storage.interface import Decide
from headrace.storage.postgres.codec import encode_copy as rows
from headrace.storage.postgres.codec.encode_insert import insert_statement
from headrace.storage.postgres.log import topic_row, topic_state
from headrace.storage.postgres.log.topic_row import TopicRow
from headrace.storage.postgres.pool import Connection
from headrace.storage.postgres.sql.schema import table_of

INSERT_ROWS_MAX: Final = 256
INSERT_BYTES_MAX: Final = 1 << 16


@dataclass(slots=True)
class CommitWriter:
    """A commit: what was decided, and its progress."""

    decide: Decide
    store_wide: bool
    commits: Sequence[Commit] | None = None
    base: int = 0
    transaction: str = ""
    is_committing: bool = False
    is_doubtful: bool = False
    is_written: bool = False
    # When to stop retrying, counted from the first loss of the connection.
    deadline: float | None = None

    @property
    def may_be_there(self) -> bool:
        """Whether the outcome is in doubt."""
        return self.is_doubtful or self.is_written


def persist(connection: Connection, topic: TopicRecord, row: TopicRow, commits: Sequence[Commit]) -> list[str]:
    """Copy large commits, and return the statements that write the rest and update the row."""
    statements: list[str] = []
    messages = 0
    for commit in commits:
        if commit.rows.num_rows:
            statements += _put_rows(connection, topic.id, row, commit)
            messages += commit.rows.num_rows
        statements += topic_state.saving(connection, topic.id, commit, row)
        row.commits = commit.number + 1
        row.last_time_us = commit.time_us
        row.round_robin = commit.round_robin
    return [*statements, topic_row.moving(topic, row, messages)]


def resolve_lost_commit(connection: Connection, topic: TopicRecord, row: TopicRow, writing: CommitWriter) -> bool:
    """Whether a commit in doubt was written; the caller holds the row."""
    assert writing.commits
    if row.commits == writing.base:
        return False
    written = [commit.directory for commit in writing.commits if commit.rows.num_rows]
    if not written or row.starts[written[0].partition[0]] > written[0].first_offset[0]:
        raise OutcomeUnknown(topic.name, "the connection was lost in COMMIT, and no trace can tell")
    query = 'SELECT 1 FROM {} WHERE partition = %s AND "offset" = %s AND time_us = %s AND xmin::text = %s'
    time_us = next(commit.time_us for commit in writing.commits if commit.rows.num_rows)
    place = [int(written[0].partition[0]), int(written[0].first_offset[0]), time_us]
    # A row has the lower half of its transaction's number.
    transaction = str(int(writing.transaction) % (1 << 32))
    return connection.execute(sql.SQL(query).format(table_of(topic.id)), [*place, transaction]).fetchone() is not None


def _put_rows(connection: Connection, topic_id: int, row: TopicRow, commit: Commit) -> list[str]:
    """Copy the rows of a commit, or return the statement that inserts them."""
    directory = commit.directory
    sizes = rows.sizes_of(commit.rows)
    places = rows.places_of(commit, sizes, row.byte_ends)
    row.ends[directory.partition] = directory.first_offset + directory.rows
    row.byte_ends[directory.partition] += np.add.reduceat(sizes, directory.first_row)
    table = table_of(topic_id, row.segment)
    if _is_small(commit, int(sizes.sum())):
        return [insert_statement(table.as_string(), commit, places)]
    columns, data = rows.encode(commit, places)
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(table, names)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(rows.HEADER)
        copy.write(data)
        copy.write(rows.TRAILER)
    return []


def _is_small(commit: Commit, size: int) -> bool:
    """Whether an INSERT is cheaper than COPY; attributes are arrays, which arrays cannot contain."""
    rows = commit.rows
    return rows.num_rows <= INSERT_ROWS_MAX and size <= INSERT_BYTES_MAX and "attributes" not in rows.schema.names

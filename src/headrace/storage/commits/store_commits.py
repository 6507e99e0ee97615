"""Commits of several topics, as rows of the catalog: the last one of each writer, and on disk the journal of them.

Such a commit is decided by one transaction of the catalog, which has all that belongs to it but messages: the key of
the commit, what groups become, and on disk the frames that make its messages valid. A database has the messages in the
same transaction.

    all_writers    the last key of each writer: a key that is known publishes nothing, whatever topics it is for now
    all_journal    on disk, for each topic of a commit the last frame, until it is known to be in its segment

Why here and not in a file: the catalog has a journal already, that of SQLite, which is written and synced once for
everything; and what groups become is in it anyway. A frame in it is a few hundred bytes: it has no messages.

Thread-safe. A transaction that fails before its COMMIT leaves nothing; the outcome of COMMIT itself may be unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select, update

from headrace.core.errors import CommitConflict
from headrace.core.publish.state import CommitKey
from headrace.core.publish.writers import ONE_TIME_PATTERN
from headrace.storage.tables import all_journal, all_writers, headrace_catalog
from headrace.storage.transactions import Transactions

# What else a transaction of the catalog stores.
CatalogChange = Callable[[Connection], object]
# Below the number of any commit.
_NEVER = -1


class RepeatedCommit(Exception):
    """A commit with this key was made before: nothing of this one is."""


class JournalEntry(NamedTuple):
    """The last frame of one topic in a commit of several topics, and where it belongs.

    segment: the number in the name of its file. before_position, before_checksum: the frame in front of it, which is
    there as long as this entry may be needed.
    """

    topic_id: int
    segment: int
    before_position: int
    before_checksum: int
    position: int
    frame: bytes


class StoreCommits:
    """The commits of several topics of a store."""

    def __init__(self, transactions: Transactions) -> None:
        self.do = transactions.do
        self._upsert = transactions.upsert

    def last_key(self, writer: str) -> CommitKey | None:
        """The key of the last commit of a writer, or None."""
        query = select(all_writers).where(all_writers.c.writer == writer)
        row = self.do(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else CommitKey(writer, row.number, row.fingerprint)

    def record(
        self, connection: Connection, key: CommitKey | None, changes: Iterable[CatalogChange], now_us: int
    ) -> None:
        """Store the key of a commit in its transaction, and what else belongs to it.

        Raises if the key is known, or is that of another commit. Of several commits of one writer at the same time the
        others wait for the first.
        """
        if key is not None:
            self._record(connection, key, now_us)
        for change in changes:
            change(connection)

    def _record(self, connection: Connection, key: CommitKey, now_us: int) -> None:
        columns = all_writers.c
        unused = {"writer": key.writer, "number": _NEVER, "written_us": now_us}
        connection.execute(self._upsert(all_writers).values(**unused).on_conflict_do_nothing())
        is_his = columns.writer == key.writer
        row = connection.execute(select(all_writers).where(is_his).with_for_update()).one()
        check_new(key, CommitKey(key.writer, row.number, row.fingerprint))
        values = {"number": key.number, "fingerprint": key.fingerprint, "written_us": now_us}
        connection.execute(update(all_writers).where(is_his).values(**values))

    def forget_writers(self, writers_max: int, one_time_max: int) -> int:
        """Forget the writers beyond a maximum, those that wrote longest ago first; returns how many.

        Writers of a single commit have a maximum of their own.
        """
        columns = all_writers.c
        once = columns.writer.like(ONE_TIME_PATTERN)

        def forget(connection: Connection) -> int:
            forgotten = 0
            for kind, most in ((~once, writers_max), (once, one_time_max)):
                newest = select(columns.writer).where(kind)
                newest = newest.order_by(columns.written_us.desc(), columns.writer).limit(most)
                others = delete(all_writers).where(kind, columns.writer.not_in(newest.scalar_subquery()))
                forgotten += connection.execute(others).rowcount
            return forgotten

        return self.do(forget)

    # The journal of a disk store

    def number(self) -> int:
        """The number of the last commit of several topics."""
        number: int = self.do(lambda connection: connection.execute(select(headrace_catalog.c.commits)).scalar_one())
        return number

    def write(self, connection: Connection, number: int, entries: Sequence[JournalEntry], done: Iterable[int]) -> None:
        """Store the last frames of a commit in its transaction; those of the commits that are done are removed."""
        connection.execute(update(headrace_catalog).values(commits=number))
        self._remove(connection, done)
        if entries:
            connection.execute(insert(all_journal), [{"number": number, **_columns(entry)} for entry in entries])

    def begin_redo(self) -> list[JournalEntry]:
        """All entries, once they are on the device: a commit that a power cut takes back must not be repeated."""
        query = select(all_journal).order_by(all_journal.c.number, all_journal.c.topicid)
        rows = self.do(lambda connection: connection.execute(query).all())
        if rows:
            # The process that wrote them may have died before it synced them: a transaction after them syncs them too.
            count = update(headrace_catalog).values(commits=headrace_catalog.c.commits + 1)
            self.do(lambda connection: connection.execute(count))
        return [JournalEntry(*row[1:]) for row in rows]

    def clear(self, done: Iterable[int] | None = None) -> None:
        """Remove the entries of the commits that are done, by default of all."""
        self.do(lambda connection: self._remove(connection, done))

    def _remove(self, connection: Connection, done: Iterable[int] | None) -> None:
        numbers = None if done is None else list(done)
        if numbers is None:
            connection.execute(delete(all_journal))
        elif numbers:
            connection.execute(delete(all_journal).where(all_journal.c.number.in_(numbers)))


def check_new(key: CommitKey, last: CommitKey) -> None:
    """Raise if a writer has made a commit with this key or a later one, or another with its number."""
    if key.conflicts_with(last):
        raise CommitConflict("", key.writer, key.number, last.number)
    if key.number <= last.number:
        raise RepeatedCommit


def _columns(entry: JournalEntry) -> dict[str, object]:
    fields = entry._asdict()
    return {"topicid": fields.pop("topic_id"), **fields}

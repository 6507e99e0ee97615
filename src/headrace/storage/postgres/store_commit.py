"""A commit of several topics, and of changes of groups, in one transaction of the database.

Locks, in this order: that of store-wide commits, the rows of the topics by their ids, the row of the writer, groups and
their offsets. Whatever fails before COMMIT leaves nothing behind, and if the connection was lost, all of it is decided
again. If COMMIT gets no answer, the next attempt asks the database what became of that transaction, once it has the
rows that it held; if nobody can tell in time, the outcome is unknown. Commits of one server to the same topics are
ordered by the locks of their logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import cast

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from headrace.core.errors import OutcomeUnknown, StoreUnavailable
from headrace.storage.commits.store_commits import StoreCommits
from headrace.storage.interface import Decide, StoreCommit
from headrace.storage.postgres.errors import is_lost
from headrace.storage.postgres.log.log import PostgresLog, WrittenView
from headrace.storage.postgres.pool import Connection as DriverConnection
from headrace.storage.tables import STORE_WIDE_LOCK, take_lock


class StoreCommitWriter:
    """One commit of several topics, and its progress."""

    def __init__(self, commits: StoreCommits, logs: Sequence[tuple[PostgresLog, Decide]], commit: StoreCommit) -> None:
        """The logs are in the order of their topics' ids."""
        self._commits = commits
        self._logs = logs
        self._commit = commit
        self._written: list[WrittenView] = []
        # The transaction of this attempt, and whether it got to its COMMIT; one before it whose outcome is unknown.
        self._transaction = ""
        self._is_committing = False
        self._doubtful: str | None = None
        self._was_written = False

    def run(self) -> None:
        """Write, and apply what was written."""
        with ExitStack() as held:
            for log, _ in self._logs:
                held.enter_context(log.writing)
            try:
                self._commits.do(self._attempt)
            except StoreUnavailable as error:
                if self._is_committing or self._doubtful is not None:
                    names = ", ".join(log.topic.name for log, _ in self._logs)
                    raise OutcomeUnknown(names, f"no answer to COMMIT: {error.reason}") from error
                raise
            if self._was_written:
                for log, _ in self._logs:
                    log.forget()
                return
            for (log, _), written in zip(self._logs, self._written, strict=True):
                log.take(written)

    def _attempt(self, connection: Connection) -> None:
        try:
            self._write(connection)
        except psycopg.Error as error:
            if is_lost(error):
                connection.invalidate(error)
            raise DBAPIError("", None, error, connection_invalidated=is_lost(error)) from error

    def _write(self, connection: Connection) -> None:
        """Everything before COMMIT."""
        if self._is_committing:
            self._doubtful, self._is_committing = self._transaction, False
        driver: DriverConnection = cast(DriverConnection, connection.connection.driver_connection)
        if self._commit.store_wide:
            driver.execute(take_lock(STORE_WIDE_LOCK))
        rows = [log.lock_row(driver) for log, _ in self._logs]
        if self._doubtful is not None and _was_committed(driver, self._doubtful):
            self._doubtful, self._was_written = None, True
            return
        self._doubtful = None
        commit = self._commit
        self._commits.record(connection, commit.key, commit.changes, commit.now_us)
        self._written = [
            log.write_within(driver, row, decide) for (log, decide), row in zip(self._logs, rows, strict=True)
        ]
        self._transaction = _transaction(driver)
        self._is_committing = True


def _transaction(connection: DriverConnection) -> str:
    found = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
    assert found is not None
    return str(found[0])


def _was_committed(connection: DriverConnection, transaction: str) -> bool:
    """Whether a transaction was committed; raises if that is not known."""
    found = connection.execute("SELECT pg_xact_status(%s::text::xid8)", [transaction]).fetchone()
    status = None if found is None else found[0]
    if status not in ("committed", "aborted"):
        raise StoreUnavailable("the database", f"a transaction is {status or 'too old to be asked for'}")
    return bool(status == "committed")

"""Connections to the database: a bounded set, one per thread at a time.

A thread that already has a connection gets the same one again: no thread holds one and waits for another, so the pool
can be small and cannot deadlock. The catalog lends its connection in the same way (`lend`), so that a topic's tables
are created in the transaction that creates its row.

    run(work)    work(connection) in a transaction of its own, again on a new connection if the old one was lost
    read(work)   the same, each statement by itself
    transact()   a transaction without a second try
    by_hand()    for callers that send BEGIN and COMMIT together with other statements

Failure: errors of the database are translated by `errors`. After a lost connection the idle ones are closed, because
they are lost too. Thread-safe.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from headrace.core.errors import Closed, StoreUnavailable
from headrace.storage.postgres.errors import failure_of, is_lost
from headrace.storage.postgres.options import DatabaseAddress, PostgresOptions

Connection = psycopg.Connection[tuple[Any, ...]]
Result = TypeVar("Result")

RETRY_PAUSE_SECONDS = 0.05


class ConnectionPool:
    """All connections of a store but those of the catalog."""

    def __init__(self, address: DatabaseAddress, options: PostgresOptions) -> None:
        self.address = address
        self.options = options
        self._parameters = _parameters(address, options)
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._room = threading.Semaphore(options.connections)
        self._mine = threading.local()
        self._closed = False

    def connect(self) -> Connection:
        """A new connection with our search path and synchronous commits.

        Each statement is its own transaction, except inside `transaction()`.
        """
        return psycopg.connect(**self._parameters, autocommit=True)

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Do repeatable work in one transaction, again on a new connection if the first was lost."""
        return self._persist(self.transact, work)

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Do read-only work, statement by statement, again on a new connection if the first was lost."""
        return self._persist(self._using, work)

    def _persist(
        self, using: Callable[[], AbstractContextManager[Connection]], work: Callable[[Connection], Result]
    ) -> Result:
        deadline = time.monotonic() + self.options.retry_seconds
        while True:
            try:
                with using() as connection:
                    return work(connection)
            except psycopg.Error as error:
                # The outer transaction has to be repeated, not only this part of it.
                if self._lent() or not is_lost(error) or time.monotonic() > deadline:
                    raise failure_of(error, self.address) from error
                time.sleep(RETRY_PAUSE_SECONDS)

    @contextmanager
    def transact(self) -> Iterator[Connection]:
        """A connection in a transaction; errors of the database are not translated."""
        with self._using() as connection, connection.transaction():
            yield connection

    @contextmanager
    def by_hand(self) -> Iterator[Connection]:
        """A connection whose user begins and commits; after an error the transaction is rolled back."""
        with self._using() as connection:
            try:
                yield connection
            except BaseException:
                # A lost one has been rolled back already.
                with suppress(psycopg.Error):
                    connection.rollback()
                raise

    def lend(self, connection: Connection, lender: object) -> None:
        """Let this thread use this connection until it is taken back."""
        self._mine.lent = [*self._lent(), (lender, connection)]

    def take_back(self, lender: object) -> None:
        """Restore what this thread used before; calling it twice is harmless."""
        self._mine.lent = [(other, connection) for other, connection in self._lent() if other is not lender]

    def _lent(self) -> list[tuple[object, Connection]]:
        lent: list[tuple[object, Connection]] = getattr(self._mine, "lent", [])
        return lent

    def close(self) -> None:
        """Close idle connections now, and the others when they are returned."""
        with self._lock:
            self._closed = True
        self._drop_idle()

    @contextmanager
    def _using(self) -> Iterator[Connection]:
        if lent := self._lent():
            yield lent[-1][1]
            return
        if not self._room.acquire(timeout=self.options.lock_timeout_seconds):
            reason = f"all {self.options.connections} connections are in use: raise connections in the URL, or retry"
            raise StoreUnavailable(self.address.name, reason)
        try:
            connection = self._take()
            self.lend(connection, self)
            try:
                yield connection
            finally:
                self.take_back(self)
                self._give_back(connection)
        finally:
            self._room.release()

    def _take(self) -> Connection:
        with self._lock:
            if self._closed:
                raise Closed("the store")
            if self._idle:
                return self._idle.pop()
        return self.connect()

    def _give_back(self, connection: Connection) -> None:
        is_idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            if is_idle and not self._closed:
                self._idle.append(connection)
                return
        connection.close()
        if not is_idle:
            self._drop_idle()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _parameters(address: DatabaseAddress, options: PostgresOptions) -> dict[str, Any]:
    """The options for libpq: those of the URL, and what every connection needs."""
    settings = {
        "search_path": sql.Identifier(options.schema).as_string(),
        "synchronous_commit": "on",
        # What others committed while we waited for a lock must be visible.
        "default_transaction_isolation": "read committed",
        "lock_timeout": f"{round(options.lock_timeout_seconds * 1000)}",
        "statement_timeout": f"{round(options.statement_timeout_seconds * 1000)}",
        "timezone": "UTC",
        # A backslash in a literal is a backslash.
        "standard_conforming_strings": "on",
        # Messages are found by their primary key; fresh tables have no statistics that would say so.
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "jit": "off",
    }
    given = str(address.parameters.get("options", ""))
    flags = [f"-c {name}={_escaped(value)}" for name, value in settings.items()]
    defaults = {
        "connect_timeout": "10",
        # A peer that vanished is noticed within a minute.
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "tcp_user_timeout": "60000",
        "application_name": "headrace",
    }
    return defaults | address.parameters | {"options": " ".join([given, *flags]).strip(), "client_encoding": "UTF8"}


def _escaped(value: str) -> str:
    """A value inside the options that libpq sends: blanks and backslashes are marked."""
    return re.sub(r"([\\\s])", r"\\\1", value)

"""The PostgreSQL store: a schema of a database, used by any number of servers at once.

Opening creates or upgrades the tables under a lock, and drops what a deleted topic left behind. The catalog has its own
connections, through SQLAlchemy; within one thread, the catalog and the topics share a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import psycopg
from sqlalchemy import Engine, create_engine, event

from headrace.core.errors import StoreUnavailable
from headrace.storage.catalog import Catalog, TopicRecord
from headrace.storage.interface import StoreCommit
from headrace.storage.postgres.errors import failure_of, reason_of
from headrace.storage.postgres.log.log import PostgresLog
from headrace.storage.postgres.log.retention import SHORT_WAIT
from headrace.storage.postgres.notify import PostgresSignals
from headrace.storage.postgres.options import DatabaseAddress, PostgresOptions
from headrace.storage.postgres.pool import Connection, ConnectionPool
from headrace.storage.postgres.sql import schema
from headrace.storage.postgres.stages import PostgresStages
from headrace.storage.postgres.store_commit import StoreCommitWriter

logger = logging.getLogger(__name__)


class PostgresStore:
    """An open PostgreSQL store."""

    def __init__(self, address: DatabaseAddress, options: PostgresOptions) -> None:
        self._connections = ConnectionPool(address, options)
        self._logs: WeakValueDictionary[int, PostgresLog] = WeakValueDictionary()
        with ExitStack() as undo:
            undo.callback(self._connections.close)
            self.catalog = _open_catalog(self._connections)
            undo.callback(self.catalog.close)
            self.stages = PostgresStages(self._connections)
            self.signals = PostgresSignals(self._connections)
            for topic_id in self._connections.read(schema.stray_topics):
                self._drop_stray(topic_id)
            undo.pop_all()

    def create_log(self, topic: TopicRecord, now_us: int) -> None:
        """Create the tables of a topic, in the transaction that adds it to the catalog."""
        self._connections.run(lambda connection: schema.make_topic(connection, topic.id, topic.key, now_us))

    def open_log(self, topic: TopicRecord, now_us: int) -> PostgresLog:
        """The log of a topic; the database is queried when it is used."""
        log = self._logs[topic.id] = PostgresLog(self._connections, self.signals, topic)
        return log

    def delete_log(self, topic_id: int) -> None:
        """Drop the tables of a topic."""
        self._connections.run(lambda connection: schema.drop_topic(connection, topic_id))

    def _drop_stray(self, topic_id: int) -> None:
        """Drop what a deleted topic left behind; tables that are being read are dropped at a later opening."""

        def drop(connection: Connection) -> None:
            connection.execute(SHORT_WAIT)
            schema.drop_topic(connection, topic_id)

        try:
            self._connections.run(drop)
        except StoreUnavailable as error:
            logger.warning("cannot clean up the deleted topic %d now, will retry later: %s", topic_id, error)

    def commit(self, commit: StoreCommit) -> None:
        """Make a commit of several topics."""
        logs = [(self._logs[topic_id], decide) for topic_id, decide in sorted(commit.topics.items())]
        StoreCommitWriter(self.catalog.commits, logs, commit).run()
        for log, _ in logs:
            self.signals.announce(f"topic:{log.topic.id}")

    def disk_space(self) -> None:
        """The disk of the database is not visible from here."""

    def can_write(self) -> bool:
        """The disk of the database is not visible from here; the request that fails says so."""
        return True

    def examine(self) -> None:
        """The database checks itself: it has its own tools, such as pg_amcheck."""

    def close(self) -> None:
        """Close every connection."""
        self.signals.close()
        self.catalog.close()
        self._connections.close()


def open_postgres_catalog(address: DatabaseAddress, options: PostgresOptions) -> Catalog:
    """Open the catalog of an existing store, even if servers have it open or are creating its tables."""
    connections = ConnectionPool(address, options)
    with _first_connection(connections):
        database = _engine(connections)
    with ExitStack() as undo:
        undo.callback(database.dispose)
        reason = partial(reason_of, address=address)
        catalog = Catalog(database, address.name, options.retry_seconds, reason, make_tables=False)
        undo.pop_all()
    return catalog


def _open_catalog(connections: ConnectionPool) -> Catalog:
    """Create or upgrade all tables, and open the catalog."""
    database = _engine(connections)
    with ExitStack() as undo:
        undo.callback(database.dispose)
        address, options = connections.address, connections.options
        with _first_connection(connections) as connection:
            schema.check_version(connection, address.name)
            schema.make_schema(connection, options.schema)
            schema.make_locks(connection)
            with schema.making_tables(connection, address.name):
                # Another server may have upgraded them meanwhile.
                schema.check_version(connection, address.name)
                reason = partial(reason_of, address=address)
                catalog = Catalog(database, address.name, options.retry_seconds, reason)
                schema.make_tables(connection)
            _warn_of_risks(connection, address.name)
        undo.pop_all()
    return catalog


def _warn_of_risks(connection: Connection, store: str) -> None:
    """Warn if fsync is off: acknowledged messages may be lost when the machine crashes."""
    if connection.execute("SHOW fsync").fetchone() == ("off",):
        logger.warning("%s runs with fsync off: a power failure may lose or damage acknowledged messages", store)


@contextmanager
def _first_connection(connections: ConnectionPool) -> Iterator[Connection]:
    """A connection, to report a wrong address at once."""
    try:
        with connections.connect() as connection:
            yield connection
    except psycopg.Error as error:
        raise failure_of(error, connections.address) from error


def _engine(connections: ConnectionPool) -> Engine:
    """The connections of the catalog, shared with the topics during a transaction of the catalog in the same thread."""

    def connect() -> Connection:
        connection = connections.connect()
        # SQLAlchemy notifies when a transaction ends.
        connection.autocommit = False
        return connection

    engine = create_engine(
        "postgresql+psycopg://",
        creator=connect,
        pool_size=5,
        max_overflow=10,
        pool_timeout=connections.options.lock_timeout_seconds,
        use_native_hstore=False,
    )

    @event.listens_for(engine, "begin")
    def lend(connection: Any) -> None:
        connections.lend(connection.connection.driver_connection, engine)

    @event.listens_for(engine, "commit")
    @event.listens_for(engine, "rollback")
    def take_back(connection: Any) -> None:
        # The connection may be broken by now, so it is not used.
        connections.take_back(engine)

    return engine

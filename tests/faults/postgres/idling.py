"""A client of the database that is idle in a transaction, beside whatever else happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.postgres_server import PostgresServer


@contextmanager
def idle_in_transaction(postgres: PostgresServer, schema: str, database: str = "postgres") -> Iterator[int]:
    """One that has looked at everything, and neither goes on nor leaves; its process at the database.

    In the end it still sees what it saw, unless the database died meanwhile.
    """
    connection = postgres.connect(database)
    alive = postgres.pid
    try:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        seen = _look(connection, schema)
        yield connection.info.backend_pid
        if postgres.pid == alive:
            assert _look(connection, schema) == seen
    finally:
        connection.close()


def _look(connection: psycopg.Connection, schema: str) -> list[object]:
    queries = [f'SELECT * FROM "{schema}".{table} ORDER BY 1, 2' for table in ("all_topics", "all_consumers")]
    return [connection.execute(query).fetchall() for query in queries]

"""Every connection to the database is ended, again and again, under load, but one that is idle in a transaction."""

from __future__ import annotations

import pytest

from tests.faults.postgres.conftest import Serve
from tests.faults.postgres.idling import idle_in_transaction
from tests.faults.postgres.load import Load
from tests.postgres_server import PostgresServer

END = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE pid NOT IN (pg_backend_pid(), %s) AND backend_type = 'client backend'"""


def end_connections(serve: Serve, postgres: PostgresServer, times: int) -> None:
    database = postgres.fresh_database()
    servers = serve(postgres.url(database), 2)
    with (
        idle_in_transaction(postgres, "headrace", database) as idle,
        Load([server.url for server in servers]) as load,
        postgres.connect() as connection,
    ):
        for _ in range(times):
            load.advance(50)
            ended = connection.execute(END, [idle]).fetchone()
            assert ended is not None and ended[0] >= len(servers)
        load.advance(50)
        load.finish()


def test_every_connection_is_ended(mortal_postgres: PostgresServer, serve: Serve) -> None:
    end_connections(serve, mortal_postgres, times=3)


@pytest.mark.campaign
def test_every_connection_is_ended_for_long(mortal_postgres: PostgresServer, serve: Serve) -> None:
    end_connections(serve, mortal_postgres, times=100)

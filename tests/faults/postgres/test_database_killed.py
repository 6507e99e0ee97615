"""PostgreSQL itself is killed and started again, under load, each time with a client that is idle in a transaction."""

from __future__ import annotations

import pytest

from tests.faults.postgres.conftest import Serve
from tests.faults.postgres.idling import idle_in_transaction
from tests.faults.postgres.load import Load
from tests.postgres_server import PostgresServer


def kill_database(serve: Serve, postgres: PostgresServer, times: int) -> None:
    url = postgres.fresh_url()
    schema = url.rpartition("schema=")[2]
    servers = serve(url, 2)
    with Load([server.url for server in servers]) as load:
        for _ in range(times):
            with idle_in_transaction(postgres, schema):
                load.advance(50)
                postgres.kill()
                postgres.start()
        with idle_in_transaction(postgres, schema):
            load.advance(50)
            load.finish()


def test_the_database_is_killed_and_comes_back(mortal_postgres: PostgresServer, serve: Serve) -> None:
    kill_database(serve, mortal_postgres, times=1)


@pytest.mark.campaign
def test_the_database_is_killed_again_and_again(mortal_postgres: PostgresServer, serve: Serve) -> None:
    kill_database(serve, mortal_postgres, times=25)

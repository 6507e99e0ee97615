"""Servers on one database of which one is killed again and again, and one that is killed in the middle of a commit."""

from __future__ import annotations

import pytest

from headrace.client import connect
from tests.broker.background import eventually
from tests.faults.postgres.conftest import Serve
from tests.faults.postgres.idling import idle_in_transaction
from tests.faults.postgres.load import PATIENCE_SECONDS, Load
from tests.postgres_server import PostgresServer

MESSAGES = 50


def kill_in_turn(serve: Serve, postgres: PostgresServer, servers: int, kills: int) -> None:
    url = postgres.fresh_url()
    running = serve(url, servers)
    with (
        idle_in_transaction(postgres, url.rpartition("schema=")[2]),
        Load([server.url for server in running], producers=servers) as load,
    ):
        for kill in range(kills):
            load.advance(MESSAGES)
            running[kill % servers].kill()
            load.advance(MESSAGES)
            running[kill % servers].start()
        load.advance(MESSAGES)
        load.finish()


def test_one_of_two_servers_is_killed_again_and_again(serve: Serve, postgres: PostgresServer) -> None:
    kill_in_turn(serve, postgres, servers=2, kills=2)


def test_one_of_four_servers_is_killed(serve: Serve, postgres: PostgresServer) -> None:
    kill_in_turn(serve, postgres, servers=4, kills=1)


@pytest.mark.campaign
@pytest.mark.parametrize("servers", [2, 4])
def test_servers_are_killed_for_long(serve: Serve, postgres: PostgresServer, servers: int) -> None:
    kill_in_turn(serve, postgres, servers, kills=40)


def test_a_server_killed_in_a_commit_leaves_all_of_it_or_nothing(serve: Serve, postgres: PostgresServer) -> None:
    """Killed when the rows are written and the sources are not: a lock on the table of sources holds it there.

    The database has the rest of the commit by then, and may go on with it.
    """
    url = postgres.fresh_url()
    schema = url.rpartition("schema=")[2]
    first, second = serve(url, 2)
    with (
        connect([first.url, second.url], timeout_seconds=PATIENCE_SECONDS) as client,
        postgres.connect() as holder,
        postgres.connect() as watcher,
    ):
        client.create_topic("orders")
        with client.producer("orders", "till-7", timeout_seconds=PATIENCE_SECONDS) as producer:
            producer.send(b"0").result(PATIENCE_SECONDS)
            holder.execute("BEGIN")
            holder.execute(f'LOCK TABLE "{schema}".topic_sources IN SHARE MODE')
            future = producer.send(b"1")
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
            held = [f"{schema}.topic_sources"]
            eventually(lambda: watcher.execute(waiting, held).fetchall() != [(0,)])
            assert client.offsets("orders") == {0: (0, 1)}
            first.kill()
            holder.execute("ROLLBACK")
            assert future.result(PATIENCE_SECONDS).status in ("written", "duplicate")
            assert producer.send(b"2").result(PATIENCE_SECONDS).status == "written"
        batch = client.read("orders", 0, 0)
        assert batch.column("value").to_pylist() == [b"0", b"1", b"2"]
        assert batch.column("seqno").to_pylist() == [1, 2, 3]
        first.start()

"""A server is told to stop while a thread of it waits for something that does not come: it stops in time."""

from __future__ import annotations

import signal
from collections.abc import Callable

import httpx
import pytest

from headrace.client import connect
from headrace.core.errors import HeadraceError, TableMissing
from tests.broker.background import Background, eventually
from tests.cli.processes import Server
from tests.postgres_server import PostgresServer

PATIENT = "lock_timeout_seconds=600&statement_timeout_seconds=600"
STOP_SECONDS = 2.0


def schema_of(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


def flight_url(server: Server) -> str:
    return next(word for word in server.ready.split() if word.startswith("headrace:"))


def fill(server: Server) -> None:
    server.post("topics", {"name": "orders"})
    server.post("topics/orders/messages", {"messages": [{"value": "a"}]})


def test_server_whose_table_was_dropped_answers_and_stops(postgres: PostgresServer) -> None:
    url = postgres.fresh_url()
    with Server(url) as server:
        fill(server)
        with postgres.connect() as database:
            database.execute(f"DROP TABLE {schema_of(url)}.topic_1_0")
        answer = server.get("/v1/topics/orders/partitions/0/messages?offset=0")
        assert (answer.status_code, answer.json()["code"]) == (503, "table_missing")
        with connect(flight_url(server), timeout_seconds=60.0) as client, pytest.raises(TableMissing):
            client.read("orders", 0, 0, 10)
        assert server.stop() == 0


def read_over_http(server: Server) -> None:
    with pytest.raises(httpx.HTTPError):
        server.get("/v1/topics/orders/partitions/0/messages?offset=0").raise_for_status()


def read_over_flight(server: Server) -> None:
    with connect(flight_url(server), timeout_seconds=1.0) as client, pytest.raises(HeadraceError):
        client.read("orders", 0, 0, 10)


@pytest.mark.parametrize("read", [read_over_http, read_over_flight])
def test_server_stops_although_a_read_waits_for_a_lock(
    postgres: PostgresServer, read: Callable[[Server], None]
) -> None:
    url = postgres.fresh_url(PATIENT)
    with Server(url, "--set", f"stop_seconds={STOP_SECONDS}") as server, postgres.connect() as database:
        fill(server)
        schema = schema_of(url)
        with database.transaction():
            database.execute(f"LOCK TABLE {schema}.topic_1_0 IN ACCESS EXCLUSIVE MODE")
            reading = Background(lambda: read(server))
            waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
            eventually(lambda: database.execute(waits, [f"{schema}.topic_1_0"]).fetchone() is not None)
            # The lock is held until the server has ended: it cannot have waited for it.
            assert server.stop(signal.SIGTERM) in (0, 5)
            assert "stopped without waiting" in server.err or "did not stop within" in server.err
        reading.result()

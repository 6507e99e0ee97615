"""Batches that an idempotent producer sends again are answered with their offset, also by another server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headrace
from headrace.broker import Broker
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.ports import ReservedPort
from tests.postgres_server import PostgresServer
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import NOW_MS, Record, built
from tests.protocols.kafka.test_hostile import produced
from tests.server_process import ServerProcess

DUPLICATE = 46
# Producer, first number and number of records, as several producers take turns.
BATCHES = [(producer, 3 * turn, 3) for turn in range(8) for producer in (7, 8, 9)]


def send(client: RawClient, producer: int, first: int, count: int) -> tuple[int, int]:
    """The error and the offset of a batch."""
    values = [b"%d of %d" % (number, producer) for number in range(first, first + count)]
    rows: list[Record] = [(NOW_MS, None, value, []) for value in values]
    return produced(client, "exact", (0, built(rows, producer=(producer, 0, first))))[0]


def check_again(port: int, answers: dict[tuple[int, int, int], tuple[int, int]]) -> None:
    """Every batch that is sent again is where it was: looked for in the log, and then remembered."""
    with RawClient(port) as client:
        assert {batch: send(client, *batch) for batch in reversed(BATCHES)} == answers
        assert {batch: send(client, *batch) for batch in BATCHES} == answers


@pytest.mark.parametrize("engine", ["disk", "postgres"])
def test_after_a_restart(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if engine == "disk":
        url = f"file:{tmp_path / 'store'}"
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.url(postgres.fresh_database())
    with ReservedPort() as port:
        server = ServerProcess(url, "--kafka", f"127.0.0.1:{port.number}")
        try:
            with headrace.connect(server.url) as client:
                client.create_topic("exact")
            with RawClient(port.number) as raw:
                answers = {batch: send(raw, *batch) for batch in BATCHES}
            assert [error for error, _ in answers.values()] == [0] * len(BATCHES)
            assert [offset for _, offset in answers.values()] == [3 * place for place in range(len(BATCHES))]
            server.kill()
            server.start()
            check_again(port.number, answers)
            with RawClient(port.number) as raw:
                assert send(raw, 7, 24, 3) == (0, 72)
        finally:
            server.close()


def test_by_another_server(postgres: PostgresServer) -> None:
    url = postgres.url(postgres.fresh_database())
    with ReservedPort() as one, ReservedPort() as two:
        servers = [ServerProcess(url, "--kafka", f"127.0.0.1:{port.number}") for port in (one, two)]
        try:
            with headrace.connect(servers[0].url) as client:
                client.create_topic("exact")
            with RawClient(one.number) as first, RawClient(two.number) as second:
                # Each server knows of each producer, and not of what the other wrote last.
                answers = {batch: send(second if batch[1] % 2 else first, *batch) for batch in BATCHES}
            assert [offset for _, offset in answers.values()] == [3 * place for place in range(len(BATCHES))]
            for port in (two, one):
                check_again(port.number, answers)
        finally:
            for server in servers:
                server.close()


@contextmanager
def serving(broker: Broker) -> Iterator[int]:
    """A server that remembers no producer."""
    listeners = sockets.bind("127.0.0.1", 0)
    with KafkaServer(broker, broker.access, KafkaSettings(), listeners):
        yield sockets.port_of(listeners)


def test_what_retention_removed_is_a_duplicate_without_an_offset() -> None:
    with Broker.open("memory:") as broker:
        broker.create_topic("exact")
        with serving(broker) as port, RawClient(port) as client:
            assert send(client, 7, 0, 3) == (0, 0)
            assert send(client, 7, 3, 3) == (0, 3)
        broker.delete_messages("exact", {0: 3})
        with serving(broker) as port, RawClient(port) as client:
            assert send(client, 7, 0, 3) == (DUPLICATE, -1)
            assert send(client, 7, 3, 3) == (0, 3)
            assert send(client, 7, 0, 3) == (DUPLICATE, -1), "it is not searched for again"
            assert send(client, 7, 6, 3) == (0, 6)

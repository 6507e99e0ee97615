"""Clients of several servers on one database: they move on when one stops, and a list of servers is one URL too."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from headrace.broker import Broker
from headrace.client import Client, connect
from headrace.client.addresses import parse_addresses
from headrace.core.errors import InvalidInput, ProducerFenced
from headrace.protocols.flight.server import FlightServer
from tests.postgres_server import PostgresServer

PATIENCE_SECONDS = 60.0


class Served:
    """A broker on a store, and its Flight server."""

    def __init__(self, store: str) -> None:
        self._broker = Broker.open(store)
        self._server = FlightServer(self._broker, self._broker.access, "grpc+tcp://127.0.0.1:0")
        self.url = f"headrace://127.0.0.1:{self._server.port}"

    def close_broker(self) -> None:
        """Stop half-way: it answers, and says that it is closed."""
        self._broker.close()

    def stop(self) -> None:
        assert self._server.stop(PATIENCE_SECONDS)
        self._broker.close()


@pytest.fixture
def two(postgres: PostgresServer) -> Iterator[tuple[Served, Served]]:
    store = postgres.fresh_url()
    servers = Served(store), Served(store)
    yield servers
    for server in servers:
        server.stop()


def connected(*servers: Served) -> Client:
    return connect([server.url for server in servers], timeout_seconds=PATIENCE_SECONDS)


def test_addresses_come_as_a_text_or_as_a_list() -> None:
    for given in ("headrace://a:1,b:2, headrace+tls://c", ["headrace://a:1", "b:2,headrace+tls://c"]):
        locations = [address.location for address in parse_addresses(given)]
        assert locations == ["grpc+tcp://a:1", "grpc+tcp://b:2", "grpc+tls://c:7071"]


@pytest.mark.parametrize("url", ["", [], [""], ["headrace://a", 7], 7, "a:1,headrace://b", "headrace://a,,b", None])
def test_what_is_no_address_is_refused(url: object) -> None:
    with pytest.raises(InvalidInput, match="url is"):
        parse_addresses(url)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["stop", "close_broker"])
def test_a_server_that_stops_is_left_for_the_next(two: tuple[Served, Served], how: str) -> None:
    first, second = two
    with connected(first, second) as client:
        client.create_topic("orders", partitions=2)
        with (
            client.producer("orders", producer_id="till", timeout_seconds=PATIENCE_SECONDS) as producer,
            client.consumer("orders", group="billing", session_timeout_seconds=PATIENCE_SECONDS) as consumer,
        ):
            assert producer.send(b"before").result(PATIENCE_SECONDS).status == "written"
            getattr(first, how)()
            assert producer.send(b"after").result(PATIENCE_SECONDS).status == "written"
            got: list[bytes] = []
            while len(got) < 2:
                batch = consumer.poll(10, timeout=PATIENCE_SECONDS)
                assert batch.num_rows, f"only {got} came"
                got += batch.column("value").to_pylist()
            consumer.commit()
        assert sorted(got) == [b"after", b"before"]
        assert sum(client.committed("orders", "billing").values()) == 2
        assert client.last_seqno("orders", "till") == 2


def test_a_producer_with_the_same_id_takes_over_through_another_server(two: tuple[Served, Served]) -> None:
    first, second = two
    with connected(first) as client, connected(second) as other:
        client.create_topic("orders")
        with client.producer("orders", producer_id="till") as old:
            old.send(b"1").result(PATIENCE_SECONDS)
            with other.producer("orders", producer_id="till") as new:
                new.send(b"2").result(PATIENCE_SECONDS)
                assert isinstance(old.send(b"3").exception(PATIENCE_SECONDS), ProducerFenced)
                new.send(b"4").result(PATIENCE_SECONDS)
        assert other.read("orders").column("value").to_pylist() == [b"1", b"2", b"4"]


def test_members_at_two_servers_share_the_partitions(two: tuple[Served, Served]) -> None:
    first, second = two
    with connected(first) as client, connected(second) as other:
        client.create_topic("orders", partitions=2)
        with client.consumer("orders", "g", member_id="a") as one, other.consumer("orders", "g", member_id="b") as two_:
            with client.producer("orders") as producer:
                for number in range(20):
                    producer.send(b"%d" % number, key=b"%d" % number)
            seen: set[bytes] = set()
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(seen) < 20 or sorted(one.assignment + two_.assignment) != [0, 1]:
                for consumer in (one, two_):
                    seen.update(consumer.poll(100, timeout=0.1).column("value").to_pylist())
                assert time.monotonic() < deadline, (len(seen), one.assignment, two_.assignment)

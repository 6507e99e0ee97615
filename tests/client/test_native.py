"""Clients publish over the native wire by themselves where the server offers it, and over Flight where they cannot."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.client import Client, connect
from headrace.core.errors import Closed, InvalidInput, OutcomeUnknown
from headrace.edge.limits import Limits
from headrace.protocols.flight.server import FlightServer
from headrace.protocols.http import server as sockets
from headrace.protocols.native.server import NativeServer
from headrace.protocols.native.settings import NativeSettings
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.client.proxy import Proxy


@dataclass
class Site:
    """A server with both wires; the native one behind a proxy."""

    broker: Broker
    limits: Limits
    proxy: Proxy
    url: str

    @property
    def native_requests(self) -> int:
        return self.limits.traffic["native"].bytes_in

    def values(self) -> list[bytes]:
        batches = [self.broker.fetch("orders", partition, 0, 1_000_000) for partition in range(2)]
        return [value for batch in batches for value in batch.column("value").to_pylist()]


@contextmanager
def site_of(settings: NativeSettings, port: int | None = None) -> Iterator[Site]:
    limits, listeners = Limits(), sockets.bind("127.0.0.1", 0)
    with ExitStack() as stack:
        broker = stack.enter_context(Broker.open("memory:"))
        broker.create_topic("orders", 2)
        stack.enter_context(NativeServer(broker, broker.access, settings, listeners, limits=limits))
        proxy = Proxy(sockets.port_of(listeners))
        stack.callback(proxy.close)
        flight = FlightServer(
            broker, broker.access, "grpc+tcp://127.0.0.1:0", limits=limits, native_port=port or proxy.port
        )
        stack.callback(flight.stop, PATIENCE_SECONDS)
        yield Site(broker, limits, proxy, f"headrace://127.0.0.1:{flight.port}")


@pytest.fixture
def site() -> Iterator[Site]:
    with site_of(NativeSettings()) as made:
        yield made


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with connect(site.url) as made:
        yield made


def batch_of(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"%d" % (first + place) for place in range(count)])})


def test_messages_of_every_form_come_as_they_were_sent(site: Site, client: Client) -> None:
    with client.producer("orders", producer_id="till") as producer:
        producer.send(b"v", key=b"k", partition=1).result(PATIENCE_SECONDS)
        producer.send(None, key=b"k", partition=1).result(PATIENCE_SECONDS)
        producer.send(b"", attributes={"a": b"1", "n": None}, partition=1).result(PATIENCE_SECONDS)
        assert producer.send_batch(batch_of(0, 3)).num_rows == 3
        assert producer.last_seqno == 6
    with client.producer("orders", codec="zstd") as producer:
        producer.send(b"z" * 1_000, partition=1).result(PATIENCE_SECONDS)
    batch = client.read("orders", 1, 0)
    rows = batch.slice(0, 3).to_pylist()
    assert [(row["value"], row["key"], row["seqno"]) for row in rows] == [
        (b"v", b"k", 1),
        (None, b"k", 2),
        (b"", None, 3),
    ]
    assert rows[2]["attributes"] == [("a", b"1"), ("n", None)]
    assert {row["producer_id"] for row in rows} == {"till"}
    assert site.native_requests > 0


def test_an_invalid_message_fails_alone(site: Site, client: Client) -> None:
    with client.producer("orders") as producer:
        good = producer.send(b"1")
        bad = producer.submit_batch(
            pa.record_batch({"value": pa.array([b"x"]), "partition": pa.array([9], pa.int32())})
        )
        assert good.result(PATIENCE_SECONDS).status == "written"
        assert isinstance(bad.exception(PATIENCE_SECONDS), InvalidInput)
        assert producer.send(b"2").result(PATIENCE_SECONDS).status == "written"
    assert sorted(site.values()) == [b"1", b"2"]
    assert site.native_requests > 0


def test_batches_that_are_cut_in_the_middle_are_sent_again_once(site: Site, client: Client) -> None:
    with client.producer("orders", producer_id="p") as producer:
        futures = []
        for number in range(24):
            if number % 8 == 3:
                eventually(lambda: site.proxy.cuts == number // 8)  # noqa: B023
                site.proxy.cut_after(30_000)
            futures.append(producer.submit_batch(batch_of(number * 1_000, 1_000)))
        for future in futures:
            assert future.result(PATIENCE_SECONDS).num_rows == 1_000
    assert site.proxy.cuts == 3
    assert Counter(site.values()) == Counter(b"%d" % number for number in range(24_000))


def test_without_an_id_a_batch_whose_answer_was_lost_is_not_sent_again(site: Site, client: Client) -> None:
    with client.producer("orders") as producer:
        assert producer.send_batch(batch_of(0, 10)).num_rows == 10
        site.proxy.cut_after(20_000)
        with pytest.raises(OutcomeUnknown):
            producer.send_batch(batch_of(10, 5_000))
        assert producer.send_batch(batch_of(10_000, 10)).num_rows == 10
    assert max(Counter(site.values()).values()) == 1


def test_connections_are_used_again_unless_the_server_has_closed_them(site: Site, client: Client) -> None:
    for number in range(4):
        if number == 2:
            # Nothing is under way: a connection that was closed meanwhile was asked nothing.
            site.proxy.cut()
        with client.producer("orders") as producer:
            producer.send(b"%d" % number).result(PATIENCE_SECONDS)
    assert sorted(site.values()) == [b"0", b"1", b"2", b"3"]
    eventually(lambda: site.limits.traffic["native"].connections <= 2)


def test_a_producer_that_was_silent_for_long_sends_over_another_connection(site: Site, client: Client) -> None:
    with client.producer("orders") as producer:
        for number in range(3):
            producer.send(b"%d" % number).result(PATIENCE_SECONDS)
            # From now on any time without a message is too long: its server may be about to close the connection.
            port = client._transport._connection.native  # type: ignore[attr-defined]
            port.silent_seconds_max = 0.0
    assert sorted(site.values()) == [b"0", b"1", b"2"]


def test_many_producers_share_a_client(site: Site, client: Client) -> None:
    def publish(number: int) -> None:
        with client.producer("orders", producer_id=f"p{number}") as producer:
            for count in range(50):
                producer.send(b"%d" % (number * 50 + count)).result(PATIENCE_SECONDS)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(publish, range(16)))
    assert Counter(site.values()) == Counter(b"%d" % number for number in range(800))


def test_a_closed_client_closes_its_connections(site: Site) -> None:
    client = connect(site.url)
    with client.producer("orders") as producer:
        producer.send(b"1").result(PATIENCE_SECONDS)
    client.close()
    eventually(lambda: site.limits.traffic["native"].connections == 0)
    with pytest.raises(Closed):
        client.producer("orders")


@pytest.mark.parametrize("what", ["nobody", "another server", "something else"])
def test_a_port_behind_which_the_server_is_not_leaves_clients_with_flight(what: str) -> None:
    with ExitStack() as stack:
        other = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = other.getsockname()[1]
        if what == "nobody":
            other.close()
        elif what == "another server":
            port = stack.enter_context(site_of(NativeSettings())).proxy.port
        site = stack.enter_context(site_of(NativeSettings(), port))
        client = stack.enter_context(connect(site.url))
        with client.producer("orders") as producer:
            assert producer.send(b"1").result(PATIENCE_SECONDS).status == "written"
        assert site.values() == [b"1"]
        assert site.native_requests == 0


def test_one_connection_too_many_goes_over_flight() -> None:
    with site_of(NativeSettings(connections_max=1)) as site, connect(site.url) as client:
        with client.producer("orders") as one, client.producer("orders") as two:
            one.send(b"1").result(PATIENCE_SECONDS)
            two.send(b"2").result(PATIENCE_SECONDS)
            assert site.limits.traffic["native"].connections <= 1
        assert sorted(site.values()) == [b"1", b"2"]

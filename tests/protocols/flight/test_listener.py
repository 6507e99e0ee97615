"""A Flight server that is replaced on its port: calls go on, files that are no good change nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
import trustme
from pyarrow import flight

from headrace.broker import Broker
from headrace.protocols.flight.listener import Certificates, FlightListener
from headrace.protocols.flight.server import FlightServer
from headrace.wire import tickets
from tests.cli.processes import eventually
from tests.ports import ReservedPort
from tests.storage.builders import values

PATIENCE_SECONDS = 60.0


class Port:
    """A listener with certificates that can be changed."""

    def __init__(self, broker: Broker, location: str, grace_seconds: float) -> None:
        self._broker = broker
        self._authority = trustme.CA()
        self.made: list[FlightServer] = []
        self.issue()
        self.location = location
        self.listener = FlightListener(lambda: [self.pair], self.make, self.location, grace_seconds)

    def issue(self) -> None:
        certificate = self._authority.issue_cert("127.0.0.1")
        self.pair = certificate.cert_chain_pems[0].bytes(), certificate.private_key_pem.bytes()

    def make(self, location: str, certificates: Certificates) -> FlightServer:
        made = FlightServer(self._broker, self._broker.access, location, certificates)
        self.made.append(made)
        return made

    def client(self) -> flight.FlightClient:
        return flight.FlightClient(self.location, tls_root_certs=self._authority.cert_pem.bytes())

    def servers(self) -> list[FlightServer]:
        """Those that had the port, without trials."""
        return [server for server in self.made if self.location.endswith(f":{server.port}")]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.open("memory:") as opened:
        opened.create_topic("orders", partitions=1)
        yield opened


@pytest.fixture
def location() -> Iterator[str]:
    """An address that no other process is given meanwhile."""
    with ReservedPort() as port:
        yield f"grpc+tls://127.0.0.1:{port.number}"


def follow(client: flight.FlightClient) -> flight.FlightStreamReader:
    return client.do_get(flight.Ticket(tickets.encode(tickets.Read("orders", 0, 0, follow=True))))


def test_calls_continue_at_the_old_server_and_new_ones_reach_the_new_one(broker: Broker, location: str) -> None:
    port = Port(broker, location, PATIENCE_SECONDS)
    with port.client() as before:
        reader = follow(before)
        broker.publish("orders", values(b"one"))
        assert reader.read_chunk().data["value"].to_pylist() == [b"one"]
        port.issue()
        port.listener.reload()
        eventually(lambda: len(port.servers()) == 2)
        with port.client() as after:
            assert list(after.list_actions())
        assert not port.servers()[0].stopping.is_set()
        assert (port.servers()[0].streams_open, port.servers()[1].streams_open) == (1, 0)
        broker.publish("orders", values(b"two"))
        assert reader.read_chunk().data["value"].to_pylist() == [b"two"]
        assert port.listener.stop(PATIENCE_SECONDS), "the old server's streams are ended too"
        with pytest.raises((StopIteration, flight.FlightError, pa.ArrowException)):
            reader.read_chunk()


def test_endless_streams_are_ended_after_a_while(broker: Broker, location: str) -> None:
    port = Port(broker, location, 0.1)
    with port.client() as before:
        reader = follow(before)
        broker.publish("orders", values(b"one"))
        assert reader.read_chunk().data["value"].to_pylist() == [b"one"]
        port.listener.reload()
        with pytest.raises((StopIteration, flight.FlightError, pa.ArrowException)):
            reader.read_chunk()
        with port.client() as after:
            assert list(after.list_actions())
    assert port.listener.stop(PATIENCE_SECONDS)


def test_a_pair_that_is_no_good_changes_nothing(
    broker: Broker, location: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = Port(broker, location, PATIENCE_SECONDS)
    port.pair = b"no certificate", b"no key"
    port.listener.reload()
    eventually(lambda: "Flight keeps the certificate it has" in caplog.text)
    with port.client() as client:
        assert list(client.list_actions())
    assert port.listener.stop(PATIENCE_SECONDS)
    port.listener.reload()


def test_a_port_that_cannot_be_had_again_does_not_hold_up_a_stop(
    broker: Broker, location: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = Port(broker, location, PATIENCE_SECONDS)
    make, is_refused = port.make, threading.Event()

    def taken(location: str, certificates: Certificates) -> FlightServer:
        if location == port.location:
            is_refused.set()
            raise pa.ArrowException("the port is taken")
        return make(location, certificates)

    monkeypatch.setattr(port.listener, "_make", taken)
    port.listener.reload()
    assert is_refused.wait(PATIENCE_SECONDS)
    eventually(lambda: "cannot listen on" in caplog.text)
    assert port.listener.stop(PATIENCE_SECONDS)

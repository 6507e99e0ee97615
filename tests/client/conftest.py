"""Every test with `client` runs twice: on a broker in this process, and over Flight on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.broker import Broker
from headrace.client import Client, connect
from headrace.flight.server import FlightServer
from headrace.testing import EmbeddedTransport


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.open("memory:") as opened:
        yield opened


@pytest.fixture
def server(broker: Broker) -> Iterator[FlightServer]:
    served = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
    yield served
    assert served.stop(60.0)


@pytest.fixture(params=["embedded", "flight"])
def client(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Client]:
    if request.param == "embedded":
        with Client(EmbeddedTransport(broker)) as made:
            yield made
    else:
        port = request.getfixturevalue("server").port
        with connect(f"headrace://127.0.0.1:{port}", timeout_seconds=60.0) as made:
            yield made

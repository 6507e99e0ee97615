"""Every test with `client` runs three times: on a broker in this process, over Flight, and so on a database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.broker import Broker
from headrace.client import Client, connect
from headrace.protocols.flight.server import FlightServer
from headrace.testing import EmbeddedTransport


@pytest.fixture(params=["embedded", "flight", "postgres"])
def way(request: pytest.FixtureRequest) -> str:
    """How a client comes to its messages."""
    return str(request.param)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    is_shared = "way" in request.fixturenames and request.getfixturevalue("way") == "postgres"
    with Broker.open(request.getfixturevalue("postgres").fresh_url() if is_shared else "memory:") as opened:
        yield opened


@pytest.fixture
def server(broker: Broker) -> Iterator[FlightServer]:
    served = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
    yield served
    assert served.stop(60.0)


@pytest.fixture
def client(request: pytest.FixtureRequest, way: str, broker: Broker) -> Iterator[Client]:
    if way == "embedded":
        with Client(EmbeddedTransport(broker)) as made:
            yield made
    else:
        port = request.getfixturevalue("server").port
        with connect(f"headrace://127.0.0.1:{port}", timeout_seconds=60.0) as made:
            yield made

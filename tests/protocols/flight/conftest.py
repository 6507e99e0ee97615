"""A Flight server on loopback over a broker in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyarrow import flight

from headrace.broker import Broker
from headrace.protocols.flight.server import FlightServer


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.open("memory:") as opened:
        yield opened


@pytest.fixture(scope="module")
def server(broker: Broker) -> Iterator[FlightServer]:
    served = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
    yield served
    assert served.stop(60.0)


@pytest.fixture(scope="module")
def plain(server: FlightServer) -> Iterator[flight.FlightClient]:
    """Flight's own client, as others would use it."""
    with flight.FlightClient(f"grpc+tcp://127.0.0.1:{server.port}") as client:
        yield client

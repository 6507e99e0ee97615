"""Every test with `client` runs on a broker in this process and over Flight.

A module whose tests depend on how a shared store keeps topics, groups and sources has `ON_POSTGRES = True`: its tests
run over Flight on a database too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.broker import Broker
from headrace.client import Client, connect
from headrace.protocols.flight.server import FlightServer
from headrace.testing import EmbeddedTransport


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "way" in metafunc.fixturenames and "way" not in chosen:
        shared = ["postgres"] if getattr(metafunc.module, "ON_POSTGRES", False) else []
        metafunc.parametrize("way", ["embedded", "flight", *shared], indirect=True)


@pytest.fixture
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

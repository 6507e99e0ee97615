"""A cursus server on loopback over a broker in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headrace.broker import Broker
from headrace.protocols.cursus.server import CursusServer
from headrace.protocols.cursus.settings import CursusSettings
from headrace.protocols.http import server as sockets
from tests.protocols.cursus.raw import RawCursus


@dataclass(frozen=True, slots=True)
class CursusSite:
    """A running server: its broker, and the port that clients connect to."""

    broker: Broker
    server: CursusServer
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def site() -> Iterator[CursusSite]:
    listeners = sockets.bind("127.0.0.1", 0)
    settings = CursusSettings(keepalive_seconds=0.2, fetch_bytes_max=1 << 16, request_bytes_max=1 << 20)
    with Broker.open("memory:") as broker, CursusServer(broker, broker.access, settings, listeners) as server:
        yield CursusSite(broker, server, sockets.port_of(listeners))


@pytest.fixture
def client(site: CursusSite) -> Iterator[RawCursus]:
    with RawCursus(site.port) as client:
        yield client


@pytest.fixture
def topic(client: RawCursus, request: pytest.FixtureRequest) -> str:
    """A topic with two partitions."""
    name = re.sub(r"[^\w.-]+", "-", request.node.name)
    assert client.ask(f"CREATE topic={name} partitions=2").startswith("OK")
    return name

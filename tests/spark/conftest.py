"""One Spark session and one broker for all tests of a process; a topic of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.broker import Broker
from headrace.broker.clock import SystemClock
from headrace.client import Client, connect
from headrace.core.limits import MICROSECONDS
from headrace.protocols.flight.server import FlightServer
from tests.spark.sessions import shared_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's Python leaves sockets to its Java to the garbage collector; ours are not of Python."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return shared_session()


class AdvancingClock(SystemClock):
    """The time of day, and as much later as a test says."""

    def __init__(self) -> None:
        self._ahead_us = 0

    def now_us(self) -> int:
        return super().now_us() + self._ahead_us

    def step(self, seconds: int) -> None:
        """Let time pass."""
        self._ahead_us += seconds * MICROSECONDS


@pytest.fixture(scope="session")
def clock() -> AdvancingClock:
    return AdvancingClock()


@pytest.fixture(scope="session")
def broker(clock: AdvancingClock) -> Iterator[Broker]:
    with Broker.open("memory:", clock=clock) as opened:
        yield opened


@pytest.fixture(scope="session")
def server(broker: Broker) -> Iterator[FlightServer]:
    served = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
    yield served
    served.stop(10.0)


@pytest.fixture(scope="session")
def url(server: FlightServer) -> str:
    return f"headrace://127.0.0.1:{server.port}"


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[Client]:
    with connect(url, timeout_seconds=60.0) as made:
        yield made


@pytest.fixture
def topic() -> str:
    """A name that no other test has; the topic is the test's to make."""
    return f"topic-{next(_numbers)}"

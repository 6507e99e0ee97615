"""The Spark session of the process, one broker for all tests of it, and a topic of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headrace.broker import Broker
from headrace.client import Client, connect
from headrace.protocols.flight.server import FlightServer
from tests.spark.sessions import shared_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return shared_session()


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    with Broker.open("memory:") as opened:
        yield opened


@pytest.fixture(scope="package")
def url(broker: Broker) -> Iterator[str]:
    served = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
    yield f"headrace://127.0.0.1:{served.port}"
    served.stop(10.0)


@pytest.fixture(scope="package")
def client(url: str) -> Iterator[Client]:
    with connect(url, timeout_seconds=60.0) as made:
        yield made


@pytest.fixture
def topic() -> str:
    """A name that no other test has; the topic is the test's to make."""
    return f"pipeline-{next(_numbers)}"

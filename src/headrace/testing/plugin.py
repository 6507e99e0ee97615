"""Fixtures for pytest, found by it without being named anywhere: `headrace_broker` and `headrace_client`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.broker import Broker
from headrace.client.client import Client
from headrace.testing.transport import EmbeddedTransport


@pytest.fixture
def headrace_broker() -> Iterator[Broker]:
    """A broker in memory, in this process, for one test."""
    with Broker.open("memory:") as broker:
        yield broker


@pytest.fixture
def headrace_client(headrace_broker: Broker) -> Iterator[Client]:
    """A client of `headrace_broker`."""
    with Client(EmbeddedTransport(headrace_broker)) as client:
        yield client

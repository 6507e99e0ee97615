"""Fixtures for pytest, found by it without being named anywhere: `headrace_broker`, `headrace_client` and
`headrace_async_client`.

Every run of pytest where Headrace is installed loads this module, so it imports nothing before a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.aio import AsyncClient
    from headrace.broker import Broker
    from headrace.client import Client


@pytest.fixture
def headrace_broker() -> Iterator[Broker]:
    """A broker in memory, in this process, for one test."""
    from headrace.broker import Broker

    with Broker.open("memory:") as broker:
        yield broker


@pytest.fixture
def headrace_client(headrace_broker: Broker) -> Iterator[Client]:
    """A client of `headrace_broker`."""
    from headrace.client import Client
    from headrace.testing import EmbeddedTransport

    with Client(EmbeddedTransport(headrace_broker)) as client:
        yield client


@pytest.fixture
def headrace_async_client(headrace_client: Client) -> AsyncClient:
    """A client of `headrace_broker` for asyncio."""
    from headrace.aio import AsyncClient

    return AsyncClient(headrace_client)

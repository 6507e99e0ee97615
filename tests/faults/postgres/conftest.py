"""Servers in processes of their own on one database, which a test may kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.broker.background import together
from tests.postgres_server import PostgresServer
from tests.server_process import ServerProcess

Serve = Callable[[str, int], Sequence[ServerProcess]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts so many servers on a store, at the same time."""
    with ExitStack() as stopping:

        def start(url: str, count: int) -> Sequence[ServerProcess]:
            servers = together([lambda: ServerProcess(url) for _ in range(count)])
            for server in servers:
                stopping.callback(server.close)
            return servers

        yield start


@pytest.fixture
def mortal_postgres() -> Iterator[PostgresServer]:
    """A database of the test's own, which it may kill."""
    server = PostgresServer()
    yield server
    server.stop()

"""A server for the tests of a module, and a topic for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.processes import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server") / "store") as running:
        yield running
        assert running.stop() == 0


@pytest.fixture
def topic(server: Server, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions with a name of its own."""
    name: str = request.node.name.removeprefix("test_")
    server.post("topics", {"name": name, "partitions": 2})
    return name

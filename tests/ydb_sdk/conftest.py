"""Where the suites run: on a server on disk, on one on PostgreSQL, and on two that share a PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.protocols.ydb.site import YdbSite


@pytest.fixture(scope="module", params=["disk", "postgresql", "two servers"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[YdbSite]:
    """A server; clients learn from it of the other one, if there is one."""
    kind = request.param
    with ExitStack() as stack:
        if kind == "disk":
            store = f"file:{tmp_path_factory.mktemp('store')}"
        else:
            postgres: PostgresServer = request.getfixturevalue("postgres")
            store = postgres.fresh_url()
        sites = [stack.enter_context(closing(YdbSite(store))) for _ in range(2 if kind == "two servers" else 1)]
        yield sites[0]


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for copies of the suites."""
    return tmp_path_factory.mktemp("suites")

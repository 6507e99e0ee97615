"""Fixtures of the HTTP tests: a server on a temporary disk store, reached over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.protocols.http.site import Site


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server for all tests of a module, for those that only make topics of their own."""
    with Site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A server of one's own."""
    with Site(tmp_path) as site:
        yield site


@pytest.fixture
def client(shared_site: Site) -> httpx.Client:
    """A client of the shared server."""
    return shared_site.client

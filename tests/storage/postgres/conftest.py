"""Two servers on one store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headrace.storage.open import open_store
from headrace.storage.postgres.engine import PostgresStore
from tests.postgres_server import PostgresServer
from tests.storage.postgres.sites import Site


@pytest.fixture
def site(postgres: PostgresServer) -> Iterator[Site]:
    """A new store, and as many servers on it as a test opens."""
    with ExitStack() as closing:

        def opened(url: str) -> PostgresStore:
            store = open_store(url)
            assert isinstance(store, PostgresStore)
            closing.callback(store.close)
            return store

        yield Site(postgres, postgres.fresh_url(), opened)

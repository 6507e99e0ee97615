"""The engines under an archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.storage.builders import DiskPlace, MemoryPlace, Place, PostgresPlace


@pytest.fixture(params=["memory", "disk", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A store of each engine, with tiny segments."""
    if request.param == "memory":
        place: Place = MemoryPlace()
    elif request.param == "disk":
        place = DiskPlace(tmp_path / "store")
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        place = PostgresPlace(postgres.fresh_url("segment_commits=3"))
    yield place
    place.close()


@pytest.fixture
def memory() -> Iterator[Place]:
    """A store whose engine does not matter."""
    place = MemoryPlace()
    yield place
    place.close()

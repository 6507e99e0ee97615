"""Fixtures of the broker tests: a site per engine, and a broker on it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headrace.broker import Broker
from tests.broker.clock import SettableClock
from tests.broker.sites import DISK, DURABLE_ENGINES, ENGINES, POSTGRES, Site

# A directory in memory, and the room that must be free in it.
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 1 << 30


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where the machine has room: what a sync costs is the matter of the storage tests."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < MEMORY_BYTES_MIN:
        yield tmp_path
        return
    with TemporaryDirectory(prefix="headrace-test-", dir=MEMORY) as directory:
        yield Path(directory)


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A store of each engine."""
    place = Site.make(request.param, tmp_path / "store", request.getfixturevalue)
    yield place
    place.close_all()


@pytest.fixture
def disk_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A store on disk, for what only files have."""
    place = Site.make(DISK, tmp_path / "store", request.getfixturevalue)
    yield place
    place.close_all()


@pytest.fixture
def shared_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A store that several brokers open at once."""
    place = Site.make(POSTGRES, tmp_path / "store", request.getfixturevalue)
    yield place
    place.close_all()


@pytest.fixture(params=DURABLE_ENGINES, ids=lambda engine: engine.name)
def durable_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A store of each engine that keeps what it has over a restart."""
    place = Site.make(request.param, tmp_path / "store", request.getfixturevalue)
    yield place
    place.close_all()


@pytest.fixture
def broker(site: Site) -> Broker:
    """A broker on a new store of each engine."""
    return site.open()


@pytest.fixture
def clock(site: Site) -> SettableClock:
    """The clock that the broker goes by."""
    return site.clock

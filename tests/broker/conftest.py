"""Fixtures of the broker tests: a site per engine, and a broker on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker import Broker
from tests.broker.clock import SettableClock
from tests.broker.sites import DURABLE_ENGINES, ENGINES, Site


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A store of each engine."""
    place = Site(request.param, tmp_path / "store")
    yield place
    place.close()


@pytest.fixture(params=DURABLE_ENGINES, ids=lambda engine: engine.name)
def durable_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A store of each engine that keeps what it has over a restart."""
    place = Site(request.param, tmp_path / "store")
    yield place
    place.close()


@pytest.fixture
def broker(site: Site) -> Broker:
    """A broker on a new store of each engine."""
    return site.open()


@pytest.fixture
def clock(site: Site) -> SettableClock:
    """The clock that the broker goes by."""
    return site.clock

"""A server for the tests of this folder, and a driver of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.protocols.ydb.site import YdbSite


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YdbSite]:
    """A server on disk, for all tests of a module."""
    site = YdbSite(f"file:{tmp_path_factory.mktemp('ydb')}/store")
    yield site
    site.close()


@pytest.fixture
def driver(site: YdbSite) -> Iterator[Any]:
    with site.driver() as driver:
        yield driver


@pytest.fixture
def topic(driver: Any, request: pytest.FixtureRequest) -> str:
    """A topic with one partition and the consumer `billing`."""
    path = f"/local/{request.node.name}"
    driver.topic_client.create_topic(path, consumers=["billing"])
    return path

"""A real S3 server behind a proxy that fails as it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.object_store.gateway import Gateway
from tests.storage.archive.object_store import ObjectStore


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "objects")


@pytest.fixture
def objects(gateway: Gateway) -> Iterator[ObjectStore]:
    with ObjectStore(gateway) as store:
        yield store

"""A real S3 server behind a proxy that fails as it is told to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.client import Client
from headrace.spark.session import session
from tests.object_store.gateway import Gateway
from tests.object_store.pipelines import LANDING, PATIENCE_SECONDS, settings_of
from tests.server_process import ServerProcess
from tests.storage.archive.object_store import CREDENTIALS, ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "objects")


@pytest.fixture
def objects(gateway: Gateway) -> Iterator[ObjectStore]:
    with ObjectStore(gateway) as store:
        yield store


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """One for all tests with Spark: Java keeps a file system of each bucket, with the address that it had first."""
    directory = tmp_path_factory.mktemp("objects")
    (directory / LANDING).mkdir()
    with ObjectStore(Gateway(directory)) as store:
        yield store


@pytest.fixture(scope="session")
def spark(lake: ObjectStore) -> Iterator[SparkSession]:
    """With settings of one bucket only: those of the archive's come from its URL."""
    # Spark's Java looks for credentials in its environment, as the server does.
    os.environ.update(CREDENTIALS)
    spark = session("local[2]", configuration=settings_of(lake))
    yield spark
    spark.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """With the two topics."""
    started = ServerProcess(f"file:{tmp_path / 'store'}")
    with headrace.connect(started.url) as client:
        client.create_topic("orders", partitions=2)
        client.create_topic("copied", partitions=2)
    yield started
    started.close()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with headrace.connect(server.url, timeout_seconds=PATIENCE_SECONDS) as connected:
        yield connected

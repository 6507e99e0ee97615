"""One server for all programs; each test has topics of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.kafka_broker import JARS
from tests.kafka_tools.tools import Tools
from tests.ports import ReservedPort
from tests.server_process import ServerProcess


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ReservedPort() as port:
        address = f"127.0.0.1:{port.number}"
        server = ServerProcess(f"file:{tmp_path_factory.mktemp('store')}", "--kafka", address)
        try:
            yield address
        finally:
            server.close()


@pytest.fixture
def tools(bootstrap: str, tmp_path: Path) -> Tools:
    if not list(JARS.glob("kafka-tools-*.jar")):
        pytest.fail("the jars of Apache Kafka are missing: make kafka-jars")
    return Tools(bootstrap, tmp_path)

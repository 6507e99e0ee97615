"""A Kafka server on loopback over a broker in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headrace.broker import Broker
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Site:
    """A running server: its broker, and the port that clients connect to."""

    broker: Broker
    port: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    listeners = sockets.bind("127.0.0.1", 0)
    settings = KafkaSettings(rebalance_delay_seconds=0.05, heartbeat_seconds=0.1)
    with Broker.open("memory:") as broker, KafkaServer(broker, broker.access, settings, listeners):
        yield Site(broker, sockets.port_of(listeners))

"""A broker with an archive that is written when a test says so, and a clock that a test moves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.broker import Broker
from headrace.broker.clock import SystemClock
from headrace.broker.settings import ArchiveSettings
from headrace.client import Client, connect
from headrace.core.limits import MICROSECONDS
from headrace.protocols.flight.server import FlightServer

# Nothing happens by itself.
_NEVER_SECONDS = 1e6


class AdvancingClock(SystemClock):
    """The time of day, and as much later as a test says."""

    ahead_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.ahead_us

    def step(self, seconds: float) -> None:
        """Let time pass."""
        self.ahead_us += int(seconds * MICROSECONDS)


@dataclass(frozen=True)
class ArchiveSite:
    """A server with an archive, and its client."""

    broker: Broker
    url: str
    client: Client
    clock: AdvancingClock

    def create(self, topic: str, partitions: int = 2, **settings: Any) -> None:
        self.client.create_topic(topic, partitions=partitions, archive="on", archive_after_seconds=0, **settings)

    def publish(self, topic: str, values: range | list[bytes], codec: str | None = None) -> None:
        """Publish numbers as JSON with keys, or bytes as they are."""
        given: Mapping[str, Any] = {} if codec is None else {"codec": codec}
        with self.client.producer(topic, **given) as producer:
            for value in values:
                data = value if isinstance(value, bytes) else json.dumps({"id": value, "half": value / 2}).encode()
                producer.send(data, key=None if isinstance(value, bytes) else str(value).encode())

    def archive(self, topic: str) -> None:
        """Archive everything that the topics have."""
        self.clock.step(1)
        self.broker.archiving.archive()
        snapshot = self.client.archive(topic)
        assert snapshot.complete == {partition: end for partition, (_, end) in snapshot.offsets.items()}


@contextmanager
def archive_site(directory: Path, url: str | None = None) -> Iterator[ArchiveSite]:
    """A disk store with an archive at a URL, or in a directory beside it."""
    clock = AdvancingClock()
    settings = ArchiveSettings(url=url or str(directory / "archive"), check_seconds=_NEVER_SECONDS)
    with Broker.open(f"file:{directory / 'store'}", clock=clock, archive=settings) as broker:
        served = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
        url = f"headrace://127.0.0.1:{served.port}"
        with connect(url, timeout_seconds=60.0) as client:
            yield ArchiveSite(broker, url, client, clock)
        served.stop(10.0)

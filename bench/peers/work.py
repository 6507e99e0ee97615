"""The work that every peer does, and what a peer has to offer for it.

Throughput: publish N messages of 100 bytes in the peer's best batch size, every batch acknowledged; then read all
of them. Latency at load: publish single messages at a set rate, each acknowledged, and take the time of each.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from bench.report import percentiles_ms

VALUE = os.urandom(100)
LATENCY_RATE = 500


@dataclass(frozen=True)
class Result:
    """What was measured of one peer."""

    name: str
    published_per_second: float
    read_per_second: float
    p50_ms: float
    p99_ms: float


class Peer(ABC):
    """A broker that can be started on loopback, used and ended."""

    name: str
    batch: int

    @abstractmethod
    def start(self, directory: Path) -> None:
        """Start it on an empty directory and connect."""

    @abstractmethod
    def publish(self, messages: int) -> None:
        """Publish N messages in batches, all acknowledged when this returns."""

    @abstractmethod
    def publish_one(self) -> None:
        """Publish one message and wait for its acknowledgement."""

    @abstractmethod
    def read(self, messages: int) -> int:
        """Read N messages from the first on; returns how many arrived."""

    @abstractmethod
    def stop(self) -> None:
        """Disconnect and end it."""


class Missing(Exception):
    """A peer cannot be had on this machine, and why."""


def measure(peer: Peer, directory: Path, messages: int, seconds: float) -> Result:
    """Have a peer do the work."""
    directory.mkdir()
    peer.start(directory)
    try:
        peer.publish(messages // 20)
        began = time.perf_counter()
        peer.publish(messages)
        published = messages / (time.perf_counter() - began)
        began = time.perf_counter()
        came = peer.read(messages)
        read = messages / (time.perf_counter() - began)
        if came != messages:
            raise RuntimeError(f"{peer.name} gave {came} of {messages} messages")
        times = _latencies(peer, seconds)
    finally:
        peer.stop()
    taken = percentiles_ms(times)
    return Result(peer.name, published, read, taken["p50"], taken["p99"])


def _latencies(peer: Peer, seconds: float) -> list[float]:
    """The time of single publishes at a set rate; one that is late does not make the next ones late too."""
    times = []
    began = time.perf_counter()
    for number in range(int(seconds * LATENCY_RATE)):
        due = began + number / LATENCY_RATE
        if (pause := due - time.perf_counter()) > 0:
            time.sleep(pause)
        start = time.perf_counter()
        peer.publish_one()
        times.append(time.perf_counter() - start)
    return times

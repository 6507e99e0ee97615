"""Headrace through its own client: Arrow batches in and out over Flight, single messages over the native wire."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.engine.loads import batch
from bench.peers.work import VALUE, Peer
from headrace import connect
from headrace.load.server import serving

UNDER_WAY = 8
# As `make run` has it; the client finds the port by itself.
NATIVE = ["--native", "127.0.0.1:0"]


class Headrace(Peer):
    """`headrace serve`, synced before every acknowledgement as it comes, or left to the operating system."""

    batch = 10_000

    def __init__(self, synced: bool) -> None:
        self.name = "Headrace, fsync always (default settings)" if synced else "Headrace, durability=os"
        self._options = "" if synced else "?durability=os"

    def start(self, directory: Path) -> None:
        self._open = ExitStack()
        server = self._open.enter_context(serving(f"file:{directory}/store{self._options}", NATIVE))
        self._client = self._open.enter_context(connect(server.url))
        self._client.create_topic("bench", partitions=8)
        self._producer = self._open.enter_context(self._client.producer("bench", linger_seconds=0.0))
        self._messages = batch(self.batch)

    def publish(self, messages: int) -> None:
        under_way: deque[Future[Any]] = deque()
        for _ in range(messages // self.batch):
            under_way.append(self._producer.submit_batch(self._messages))
            if len(under_way) >= UNDER_WAY:
                under_way.popleft().result()
        for future in under_way:
            future.result()

    def publish_one(self) -> None:
        self._producer.send(VALUE).result()

    def read(self, messages: int) -> int:
        count = 0
        with self._client.consumer("bench") as consumer:
            while count < messages:
                rows = consumer.poll(100_000, timeout=30.0).num_rows
                if not rows:
                    break
                count += rows
        return min(count, messages)

    def stop(self) -> None:
        self._open.close()

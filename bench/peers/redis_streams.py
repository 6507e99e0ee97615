"""Redis Streams through redis-py: XADD in pipelines, XRANGE in large pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.peers import processes
from bench.peers.work import VALUE, Peer


class RedisStreams(Peer):
    """Redis with its append-only file synced always, or as it comes."""

    batch = 1_000

    def __init__(self, synced: bool) -> None:
        self.name = "Redis Streams, fsync always" if synced else "Redis Streams, default settings"
        self._synced = synced
        self._client: Any = None

    def start(self, directory: Path) -> None:
        import redis

        program = processes.find("redis-server", "redis-server")
        port = processes.free_port()
        options = ["--appendonly", "yes", "--appendfsync", "always"] if self._synced else []
        command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), *options]
        self._process = processes.start(command, port, directory)
        self._client = redis.Redis(port=port)

    def publish(self, messages: int) -> None:
        for _ in range(messages // self.batch):
            pipeline = self._client.pipeline(transaction=False)
            for _ in range(self.batch):
                pipeline.xadd("bench", {"value": VALUE})
            pipeline.execute()

    def publish_one(self) -> None:
        self._client.xadd("bench", {"value": VALUE})

    def read(self, messages: int) -> int:
        count, first = 0, "-"
        while count < messages:
            entries = self._client.xrange("bench", min=first, count=min(10_000, messages - count))
            if not entries:
                return count
            count += len(entries)
            first = b"(" + entries[-1][0]
        return count

    def stop(self) -> None:
        self._client.close()
        processes.stop(self._process)

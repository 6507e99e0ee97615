"""NATS JetStream through nats-py: publishes in flight together, a pull consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from bench.peers import processes
from bench.peers.work import VALUE, Missing, Peer


class NatsJetStream(Peer):
    """JetStream with file storage, synced always, or as it comes."""

    batch = 1_000

    def __init__(self, synced: bool) -> None:
        self.name = "NATS JetStream, fsync always" if synced else "NATS JetStream, default settings"
        self._synced = synced
        self._loop = asyncio.new_event_loop()

    def start(self, directory: Path) -> None:
        program = processes.find("nats-server", "nats-server")
        port = processes.free_port()
        sync = '  sync_interval: "always"\n' if self._synced else ""
        config = directory / "nats.conf"
        config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{\n  store_dir: "{directory}"\n{sync}}}\n')
        try:
            self._process = processes.start([program, "-c", str(config)], port, directory)
        except processes.NotStarted as error:
            if "sync_interval" in str(error):
                raise Missing("this nats-server cannot sync every write: 2.10 is the first that can") from None
            raise
        self._run(self._connect(port))

    async def _connect(self, port: int) -> None:
        import nats

        self._client = await nats.connect(f"nats://127.0.0.1:{port}")
        self._stream = self._client.jetstream(timeout=60)
        await self._stream.add_stream(name="bench", subjects=["bench"])

    def publish(self, messages: int) -> None:
        self._run(self._publish(messages))

    async def _publish(self, messages: int) -> None:
        for _ in range(messages // self.batch):
            await asyncio.gather(*(self._stream.publish("bench", VALUE) for _ in range(self.batch)))

    def publish_one(self) -> None:
        self._run(self._stream.publish("bench", VALUE))

    def read(self, messages: int) -> int:
        return int(self._run(self._read(messages)))

    async def _read(self, messages: int) -> int:
        from nats.js.api import AckPolicy, ConsumerConfig

        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        consumer = await self._stream.pull_subscribe("bench", config=config)
        count = 0
        while count < messages:
            count += len(await consumer.fetch(min(5_000, messages - count), timeout=10))
        return count

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    def stop(self) -> None:
        self._run(self._client.close())
        self._loop.close()
        processes.stop(self._process)

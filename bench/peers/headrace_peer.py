"""Headrace through its own client over Flight: Arrow batches in and out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bench.engine.loads import batch
from bench.peers.work import VALUE, Peer
from headrace import connect


class Headrace(Peer):
    """`headrace serve`, synced before every acknowledgement as it comes, or left to the operating system."""

    batch = 10_000

    def __init__(self, synced: bool) -> None:
        self.name = "Headrace, fsync always (as it comes)" if synced else "Headrace, durability=os"
        self._options = "" if synced else "?durability=os"

    def start(self, directory: Path) -> None:
        program = str(Path(sys.executable).with_name("headrace"))
        command = [program, "serve", "--store", f"file:{directory}/store{self._options}", "--log-level", "warning"]
        command += ["--http", "127.0.0.1:0", "--flight", "127.0.0.1:0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        found = re.search(r"headrace://\S+", ready)
        if found is None:
            raise RuntimeError(f"the server did not start: {ready!r}")
        self._client = connect(found.group())
        self._client.create_topic("bench", partitions=8)
        self._producer = self._client.producer("bench", linger_seconds=0.0)
        self._messages = batch(self.batch)

    def publish(self, messages: int) -> None:
        for _ in range(messages // self.batch):
            self._producer.send_batch(self._messages)

    def publish_one(self) -> None:
        self._producer.send(VALUE).result()

    def read(self, messages: int) -> int:
        count = 0
        for partition, (start, end) in self._client.offsets("bench").items():
            while start < end and count < messages:
                rows = self._client.read("bench", partition, start, max_messages=100_000).num_rows
                start, count = start + rows, count + rows
        return min(count, messages)

    def stop(self) -> None:
        self._producer.close()
        self._client.close()
        self._process.terminate()
        self._process.wait(20)
        if self._process.stdout is not None:
            self._process.stdout.close()

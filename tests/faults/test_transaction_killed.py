"""A server is killed while clients commit to several topics at once: each commit is there whole and once, or not."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from headrace.client import Client, connect
from headrace.core.errors import HeadraceError
from tests.broker.background import Background, eventually
from tests.server_process import ServerProcess

TOPICS = ("a", "b", "c")
LIVES = 5
CLIENTS = 3
# What each client gets done in each life of the server, before it is killed in the middle of the next.
STEPS_PER_LIFE = 8


class Worker:
    """Moves its input of numbered messages to the topics, each in a transaction with the offset behind it."""

    def __init__(self, server: ServerProcess, name: str, stopped: threading.Event) -> None:
        self.name = name
        self.steps = 0
        self._server = server
        self._stopped = stopped
        self.thread = Background(self._run)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with connect(self._server.url, timeout_seconds=60.0) as client:
                    self._work(client)
            except HeadraceError:
                # The outcome may be unknown: the committed offset tells whether it was done.
                time.sleep(0.01)

    def _work(self, client: Client) -> None:
        while not self._stopped.is_set():
            done = client.committed("in", self.name).get(0, 0)
            with client.transaction() as transaction:
                for topic in TOPICS:
                    transaction.send(topic, f"{self.name}-{done}".encode())
                transaction.send_group_offsets("in", self.name, {0: done + 1})
            self.steps += 1


def test_transactions_are_whole_and_once_however_often_the_server_is_killed(tmp_path: Path) -> None:
    server = ServerProcess(f"file:{tmp_path / 'store'}")
    try:
        stopped = threading.Event()
        with connect(server.url) as client:
            for topic in ("in", *TOPICS):
                client.create_topic(topic)
            with client.producer("in") as producer:
                for number in range(20_000):
                    producer.send(b"%d" % number)
            names = [f"worker{number}" for number in range(CLIENTS)]
            for name in names:
                client.register_group("in", name)
        workers = [Worker(server, name, stopped) for name in names]
        try:
            for _ in range(LIVES):
                goal = CLIENTS * STEPS_PER_LIFE + sum(worker.steps for worker in workers)
                eventually(partial(_has_reached, workers, goal))
                server.kill()
                server.start()
        finally:
            stopped.set()
        for worker in workers:
            worker.thread.result()
        with connect(server.url) as client:
            done = {name: client.committed("in", name).get(0, 0) for name in names}
            wanted_values = Counter(f"{name}-{number}".encode() for name in names for number in range(done[name]))
            assert sum(done.values()) >= LIVES * CLIENTS * STEPS_PER_LIFE
            for topic in TOPICS:
                found = Counter(_values(client, topic))
                assert found == wanted_values, f"topic {topic}: what is partial, lost or doubled"
        server.stop()
    finally:
        server.close()


def _has_reached(workers: Sequence[Worker], steps: int) -> bool:
    return sum(worker.steps for worker in workers) >= steps


def _values(client: Client, topic: str) -> list[bytes]:
    _, end = client.offsets(topic)[0]
    values: list[bytes] = []
    while len(values) < end:
        values += client.read(topic, 0, len(values), max_messages=10_000).column("value").to_pylist()
    return values

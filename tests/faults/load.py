"""A process that publishes in every way it can until it is killed, and tells its parent what was acknowledged.

Every worker numbers its commits and sends them one after another; a value says which worker, commit and row it is,
and how many rows the commit has. A worker begins with the commit after the last one that its parent heard of: that
one may have been written before the process died, so it is a retry.
"""

from __future__ import annotations

import random
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from headrace.broker import (
    Broker,
    BrokerSettings,
)
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
from headrace.core.topics.settings import TopicOptions
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.options import DiskOptions
from tests.faults.invariants import Message, Place, batch_of

SMALL = DiskOptions(segment_bytes=20_000, segment_frames=30)
# Upkeep has work to do all the time.
BUSY = BrokerSettings(frame_rows=8, retention_check_seconds=0.02, window_clean_seconds=0.05, sources_check_seconds=0.05)
PARTITIONS = 3
TOPICS: Mapping[str, TopicOptions] = {
    "plain": {},
    "payload": {"deduplication": "payload"},
    "short": {"retention_bytes": 60_000},
}


@dataclass(frozen=True)
class Acknowledged:
    """What a worker was told: where the rows of a commit are, or nothing for a duplicate."""

    worker: str
    number: int
    places: tuple[Place | None, ...]


@dataclass(frozen=True)
class Committed:
    """A group's offsets, before and after they were stored."""

    offsets: dict[int, int]
    is_stored: bool


@dataclass(frozen=True)
class Failed:
    """An error that no worker should meet."""

    error: str


def told_of(answer: Receipts | tuple[int, int]) -> tuple[Place | None, ...]:
    """Where messages are, or nothing for duplicates and for staged ones."""
    if isinstance(answer, tuple):
        return (None,) * sum(answer)
    places = zip(answer.partition.tolist(), answer.offset.tolist(), strict=True)
    return tuple(place if place[1] >= 0 else None for place in places)


Report = Acknowledged | Committed | Failed


def values_of(worker: str, number: int, rows: int) -> list[bytes]:
    """The values of a commit."""
    return [b"%s.%d.%d.%d" % (worker.encode(), number, row, rows) for row in range(rows)]


def rows_of(worker: str, number: int) -> int:
    """How many rows a commit has, the same at every try."""
    largest = {"single": 1, "large": 40}.get(worker.split("-")[0], 6)
    return random.Random(f"{worker}/{number}").randint((largest + 1) // 2, largest)


def messages_of(worker: str, number: int) -> list[Message]:
    """The messages of a commit."""
    values = values_of(worker, number, rows_of(worker, number))
    kind = worker.split("-")[0]
    if kind in ("keyed", "staged", "payload"):
        return [Message(value) for value in values]
    # Seqnos rise from commit to commit, with gaps.
    if kind == "mixed":
        return [
            Message(value, b"k%d" % (row % 4), worker, f"g{row % 2}", number * 1000 + row)
            for row, value in enumerate(values)
        ]
    return [Message(value, None, worker, None, number * 1000 + row) for row, value in enumerate(values)]


Send = Callable[[Broker, str, int], Receipts | tuple[int, int]]


def send_numbered(broker: Broker, worker: str, number: int) -> Receipts:
    topic = "short" if worker.startswith("short") else "plain"
    return broker.publish(topic, batch_of(messages_of(worker, number)))


def send_keyed(broker: Broker, worker: str, number: int) -> Receipts:
    return broker.publish("plain", batch_of(messages_of(worker, number)), CommitKey(worker, number))


def send_payload(broker: Broker, worker: str, number: int) -> Receipts:
    return broker.publish("payload", batch_of(messages_of(worker, number)))


def send_staged(broker: Broker, worker: str, number: int) -> tuple[int, int]:
    messages = messages_of(worker, number)
    half = len(messages) // 2
    parts = [messages[:half], messages[half:]]
    stages = [broker.stage("plain", batch_of(part)) for part in parts]
    return broker.publish_staged("plain", stages, CommitKey(worker, number))


WORKERS: Mapping[str, Send] = {
    "single-0": send_numbered,
    "single-1": send_numbered,
    "mixed-0": send_numbered,
    "mixed-1": send_numbered,
    "large-0": send_numbered,
    "short-0": send_numbered,
    "keyed-0": send_keyed,
    "payload-0": send_payload,
    "staged-0": send_staged,
}


class Load:
    """The workers of one process."""

    def __init__(self, directory: Path, parent: Connection, begin: Mapping[str, int]) -> None:
        self._broker = Broker(DiskStore(directory, SMALL), BUSY)
        self._parent = parent
        self._begin = begin
        self._lock = threading.Lock()

    def run(self) -> None:
        """Work until the process is killed."""
        for topic, settings in TOPICS.items():
            self._broker.create_topic(topic, PARTITIONS, **settings)
        self._broker.register_group("plain", "readers")
        self._broker.maintenance.start()
        works: list[Callable[[], None]] = [partial(self._publish, worker) for worker in WORKERS]
        works += [self._read, self._make_topics]
        threads = [threading.Thread(target=self._guard, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            self._tell(Failed(traceback.format_exc()))
            raise

    def _tell(self, report: Report) -> None:
        with self._lock:
            self._parent.send(report)

    def _publish(self, worker: str) -> None:
        number = self._begin.get(worker, 0)
        while True:
            self._tell(Acknowledged(worker, number, told_of(WORKERS[worker](self._broker, worker, number))))
            number += 1

    def _read(self) -> None:
        """Follow a topic and commit what was read."""
        while True:
            for partition, offset in {**dict.fromkeys(range(PARTITIONS), 0), **self._committed()}.items():
                rows = self._broker.fetch("plain", partition, offset, wait_seconds=0.05).num_rows
                offsets = {**self._committed(), partition: offset + rows}
                self._tell(Committed(offsets, is_stored=False))
                self._broker.commit_offsets("plain", "readers", {partition: offset + rows})
                self._tell(Committed(offsets, is_stored=True))

    def _committed(self) -> dict[int, int]:
        return self._broker.committed("plain", "readers")

    def _make_topics(self) -> None:
        """Make topics, use them and delete them."""
        while True:
            self._broker.create_topic("passing", 2)
            self._broker.publish("passing", batch_of([Message(b"passing")]))
            self._broker.delete_topic("passing")


def run(directory: Path, parent: Connection, begin: Mapping[str, int]) -> None:
    """The body of the process that is killed."""
    Load(directory, parent, begin).run()

"""YDB's own writers and reader while their servers are killed, and what must be true of what they wrote and read.

Two writers send without waiting. In every round a server is killed once some of what the round sent is acknowledged,
and started again at its port; the SDK reconnects by itself. At the end the topic is read without a group, and compared
with what was acknowledged and with what the reader was given.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import ydb

import headrace
from tests.protocols.ydb.site import DATABASE, YdbSite

MESSAGES: Final = 60
PARTITIONS: Final = 2
CONSUMER: Final = "reader"
_CHUNK: Final = 10
_PATIENCE_SECONDS: Final = 240.0
# The reader looks so often whether it shall end.
_LOOK_SECONDS: Final = 0.5


@dataclass
class Producer:
    """A writer that numbers its values, and the futures of its chunks."""

    name: str
    writer: Any
    sent: int = 0
    chunks: list[tuple[list[bytes], Future[Any]]] = field(default_factory=list)

    def send(self, count: int) -> list[Future[Any]]:
        """Send so many; nobody waits for them here."""
        values = [f"{self.name}-{self.sent + number}".encode() for number in range(count)]
        self.sent += count
        begun = []
        for start in range(0, count, _CHUNK):
            chunk = values[start : start + _CHUNK]
            future = self.writer.async_write_with_ack([ydb.TopicWriterMessage(value) for value in chunk])
            self.chunks.append((chunk, future))
            begun.append(future)
        return begun


class Reader(threading.Thread):
    """Reads and commits until it has seen so many messages; `seen` is what it was given, in that order."""

    def __init__(self, driver: Any, path: str, wanted: int) -> None:
        super().__init__(name="ydb-reader", daemon=True)
        self._driver = driver
        self._path = path
        self._wanted = wanted
        self.seen: list[tuple[int, int, bytes]] = []
        self.is_given_up = threading.Event()

    def run(self) -> None:
        with self._driver.topic_client.reader(self._path, consumer=CONSUMER) as reader:
            places: set[tuple[int, int]] = set()
            while len(places) < self._wanted and not self.is_given_up.is_set():
                try:
                    batch = reader.receive_batch(timeout=_LOOK_SECONDS)
                except TimeoutError:
                    continue
                for message in batch.messages:
                    self.seen.append((message.partition_id, message.offset, message.data))
                    places.add((message.partition_id, message.offset))
                try:
                    reader.commit(batch)
                except ydb.TopicReaderPartitionExpiredError:
                    # Of a session that was lost with its server: they come again.
                    continue


def play(sites: Sequence[YdbSite], kills: int, seed: int = 1) -> None:
    """Write and read while the servers are killed so many times, and check what is left."""
    chance = random.Random(seed)
    path, name = f"{DATABASE}/killed", "killed"
    with ExitStack() as stack:
        driver = stack.enter_context(sites[0].driver())
        driver.topic_client.create_topic(path, min_active_partitions=PARTITIONS, consumers=[CONSUMER])
        producers = [
            Producer(each, stack.enter_context(driver.topic_client.writer(path, producer_id=each)))
            for each in ("one", "two")
        ]
        total = MESSAGES * len(producers) * (kills + 1)
        reader = Reader(driver, path, total)
        reader.start()
        try:
            for number in range(kills):
                _kill_in_flight(sites[number % len(sites)], producers, chance)
            for producer in producers:
                producer.send(MESSAGES)
            acknowledged = {
                value: result
                for producer in producers
                for chunk, future in producer.chunks
                for value, result in zip(chunk, future.result(_PATIENCE_SECONDS), strict=True)
            }
            reader.join(_PATIENCE_SECONDS)
        finally:
            reader.is_given_up.set()
            reader.join(_PATIENCE_SECONDS)
        log = _log(sites[0], name)
    _check(log, acknowledged, [producer.name for producer in producers], total)
    _check_read(reader.seen, log)


def _kill_in_flight(site: YdbSite, producers: Sequence[Producer], chance: random.Random) -> None:
    begun = [future for producer in producers for future in producer.send(MESSAGES)]
    for _ in range(chance.randrange(len(begun))):
        done, rest = wait(begun, _PATIENCE_SECONDS, FIRST_COMPLETED)
        assert done, "the writers continue"
        begun = list(rest)
        if not begun:
            break
    site.server.kill()
    site.server.start()


def _log(site: YdbSite, name: str) -> dict[tuple[int, int], tuple[str, int, bytes]]:
    found = {}
    with headrace.connect(site.server.url) as client:
        for partition, (start, end) in client.offsets(name).items():
            assert start == 0
            while start < end:
                batch = client.read(name, partition, start)
                for row in batch.to_pylist():
                    found[partition, row["offset"]] = row["producer_id"], row["seqno"], row["value"]
                start = batch.column("offset")[-1].as_py() + 1
    return found


def _check(
    log: dict[tuple[int, int], tuple[str, int, bytes]], acknowledged: dict[bytes, Any], names: Sequence[str], total: int
) -> None:
    written = {f"{name}-{number}".encode() for name in names for number in range(total // len(names))}
    stored = [value for _, _, value in log.values()]
    assert len(stored) == len(set(stored)), "nothing is stored twice"
    assert set(stored) == set(acknowledged) == written, "everything is stored"
    for name in names:
        own = [(place[0], seqno, value) for place, (producer, seqno, value) in sorted(log.items()) if producer == name]
        assert len({partition for partition, _, _ in own}) == 1
        assert [seqno for _, seqno, _ in own] == sorted(seqno for _, seqno, _ in own)
        assert [value for _, _, value in own] == [f"{name}-{number}".encode() for number in range(len(own))]
    offsets = {value: place[1] for place, (_, _, value) in log.items()}
    for value, result in acknowledged.items():
        # What was skipped was written before its server was killed.
        if isinstance(result, ydb.TopicWriteResult.Written):
            assert result.offset == offsets[value]


def _check_read(seen: Sequence[tuple[int, int, bytes]], log: dict[tuple[int, int], tuple[str, int, bytes]]) -> None:
    assert {(partition, offset, value) for partition, offset, value in seen} == {
        (*place, value) for place, (_, _, value) in log.items()
    }
    for partition in range(PARTITIONS):
        first = list(dict.fromkeys(offset for at, offset, _ in seen if at == partition))
        assert first == sorted(first), "what comes again comes in order too"

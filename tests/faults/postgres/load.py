"""The load that every fault is put to: producers and members of one group, as clients of all servers.

Each producer numbers its messages and sends them with one key, so that its order can be checked. After the fault every
acknowledged message must be there once, in its producer's order, at dense offsets, and the group must have read all.
A step waits for what has happened, never for time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from headrace.client import Client, Receipt, connect
from tests.broker.background import Background

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 3
# Only a load that has failed ever waits so long.
PATIENCE_SECONDS = 120.0


class Load:
    """Producers and members at work until it is finished."""

    def __init__(self, urls: Sequence[str], producers: int = 2, members: int = 2) -> None:
        self._urls = list(urls)
        self._over = threading.Event()
        self._drained = threading.Event()
        self.sent = [0] * producers
        self.acknowledged = [0] * producers
        self.read: set[bytes] = set()
        with self.client() as client:
            client.create_topic(TOPIC, partitions=PARTITIONS)
        self._producers = [Background(self._producing(number)) for number in range(producers)]
        self._members = [Background(self._consuming(number)) for number in range(members)]

    def client(self, place: int = 0) -> Client:
        """A client of all servers, which begins with one of them."""
        turn = place % len(self._urls)
        return connect([*self._urls[turn:], *self._urls[:turn]], timeout_seconds=PATIENCE_SECONDS)

    def advance(self, messages: int) -> None:
        """Wait until every producer has so many more acknowledged, and the group has read so many more."""
        goals, read = [count + messages for count in self.acknowledged], len(self.read) + messages
        self._until(
            lambda: (
                len(self.read) >= read
                and all(count >= goal for count, goal in zip(self.acknowledged, goals, strict=True))
            )
        )

    def finish(self) -> None:
        """Stop producing, let everything be read, and look at what there is."""
        self._over.set()
        for producer in self._producers:
            producer.result()
        expected = {value for number in range(len(self.sent)) for value in _values(number, self.sent[number])}
        self._until(lambda: self.read >= expected)
        with self.client() as client:
            # What was read may have yet to be committed.
            self._until(lambda: _lags(client) == dict.fromkeys(range(PARTITIONS), 0))
            self._drained.set()
            for member in self._members:
                member.result()
            check(client, self.sent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._drained.set()

    def _producing(self, number: int) -> Callable[[], None]:
        def produce() -> None:
            with (
                self.client(number) as client,
                client.producer(
                    TOPIC, f"p{number}", timeout_seconds=PATIENCE_SECONDS, linger_seconds=0.001
                ) as producer,
            ):
                while not self._over.is_set():
                    first = self.sent[number]
                    futures: list[Future[Receipt]] = [
                        producer.send(b"%d:%d" % (number, place), key=b"%d" % number)
                        for place in range(first, first + 5)
                    ]
                    self.sent[number] += len(futures)
                    for future in futures:
                        future.result(PATIENCE_SECONDS)
                    self.acknowledged[number] += len(futures)

        return produce

    def _consuming(self, number: int) -> Callable[[], None]:
        def consume() -> None:
            with (
                self.client(number + 1) as client,
                client.consumer(TOPIC, GROUP, member_id=f"m{number}", session_timeout_seconds=60) as consumer,
            ):
                while not self._drained.is_set():
                    self.read.update(consumer.poll(500, timeout=0.2).column("value").to_pylist())
                    # What another member reads by now is for it to commit.
                    consumer.commit()

        return consume

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            for worker in (*self._producers, *self._members):
                if worker.is_done and not self._over.is_set():
                    worker.result()
                    raise AssertionError("a client has ended too early")
            assert time.monotonic() < deadline, (self.sent, self.acknowledged, len(self.read))
            time.sleep(0.01)


def _values(number: int, count: int) -> list[bytes]:
    return [b"%d:%d" % (number, place) for place in range(count)]


def check(client: Client, sent: Sequence[int]) -> None:
    """Every message once, in order, at dense offsets; the group stands at the end."""
    batches = [client.read(TOPIC, partition, 0, 1 << 20) for partition in range(PARTITIONS)]
    written: list[bytes] = []
    for partition, batch in enumerate(batches):
        assert client.offsets(TOPIC)[partition] == (0, batch.num_rows)
        assert batch.column("offset").to_pylist() == list(range(batch.num_rows))
        times = batch.column("timestamp").to_pylist()
        assert times == sorted(times)
        written += batch.column("value").to_pylist()
    for number, count in enumerate(sent):
        own = [value for value in written if value.startswith(b"%d:" % number)]
        assert own == _values(number, count)
    assert len(written) == sum(sent)
    assert _lags(client) == dict.fromkeys(range(PARTITIONS), 0)


def _lags(client: Client) -> dict[int, int]:
    progress = client.describe_group(TOPIC, GROUP).progress
    return {partition: each.lag_messages for partition, each in progress.items()}

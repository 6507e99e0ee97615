"""Clients that publish: batches of a source, single messages without one, and commits put together from stages.

Each runs in its own thread until it is stopped, and continues after every error: the outcome of the call is recorded
as ok, failed or unknown. Messages are numbered in the order sent; their values begin with their id.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import Final

import pyarrow as pa

from headrace.client import Client
from headrace.client.producer.producer import Producer
from headrace.core.errors import (
    AnswerLost,
    DiskFull,
    HeadraceError,
    InvalidInput,
    Overloaded,
    StoreUnavailable,
    Unreachable,
)
from headrace.core.publish.state import CommitKey
from headrace.verify.history.events import Outcome, PublishEnded, PublishStarted
from headrace.verify.history.file import Recorder

BATCH_MESSAGES_MAX: Final = 40
KEYS: Final = 12
_PADDING_BYTES_MAX: Final = 300
_PAUSE_SECONDS: Final = 0.2
# After these errors nothing was written, as docs/guarantees.md says. After any other it may have been.
_NOTHING_WRITTEN: Final = (InvalidInput, Overloaded, DiskFull, StoreUnavailable, Unreachable)

Connect = Callable[[], Client]


def message_id(value: bytes) -> str:
    """The id of a message, from its value."""
    return value.partition(b" ")[0].decode(errors="replace")


def outcome_of(error: HeadraceError) -> Outcome:
    """What an error says about the messages that were to be written."""
    is_certain = isinstance(error, _NOTHING_WRITTEN) and not isinstance(error, AnswerLost)
    return "failed" if is_certain else "unknown"


class _Sender:
    """What all of them have in common: numbers, keys, values, and a rate."""

    def __init__(self, name: str, topic: str, recorder: Recorder, rate: float, seed: int) -> None:
        self.name = name
        self.topic = topic
        self.recorder = recorder
        self.random = random.Random(f"{seed}-{name}")
        self._rate = rate
        self._next = 0

    def messages(self) -> list[str]:
        """Ids for the next messages; waits so that the rate is kept."""
        count = self.random.randint(1, BATCH_MESSAGES_MAX)
        time.sleep(count / self._rate)
        first, self._next = self._next, self._next + count
        return [f"{self.name}:{number}" for number in range(first, first + count)]

    def keys(self, count: int) -> list[str]:
        """Keys of this client for a number of messages."""
        return [f"{self.name}-key-{self.random.randrange(KEYS)}" for _ in range(count)]

    def value(self, message: str) -> bytes:
        """A value that begins with the id."""
        return message.encode() + b" " + b"x" * self.random.randrange(_PADDING_BYTES_MAX)

    def batch(self, messages: list[str], keys: list[str]) -> pa.RecordBatch:
        """Messages as a batch to publish."""
        columns = {"value": pa.array([self.value(message) for message in messages], pa.binary())}
        if keys:
            columns["key"] = pa.array([key.encode() for key in keys], pa.binary())
        return pa.record_batch(columns)

    def call(self, source: str | None, messages: list[str], keys: list[str], is_one_commit: bool = True) -> int:
        """Record that messages are about to be sent."""
        number = self.recorder.number()
        self.recorder.record(
            PublishStarted(number, self.name, source, messages, time.monotonic_ns(), keys, is_one_commit)
        )
        return number

    def end(self, number: int, outcome: Outcome, places: list[tuple[int, int] | None], error: str = "") -> None:
        """Record their outcome."""
        self.recorder.record(PublishEnded(number, outcome, time.monotonic_ns(), places, error[:200]))


class BatchPublisher(_Sender):
    """Sends batches, each in one commit, as a producer with an id or without one."""

    def __init__(
        self, name: str, topic: str, recorder: Recorder, rate: float, seed: int, is_source: bool, has_keys: bool
    ) -> None:
        super().__init__(name, topic, recorder, rate, seed)
        self._source = name if is_source else None
        self._has_keys = has_keys

    def run(self, connect: Connect, stop: threading.Event, patience_seconds: float) -> None:
        """Publish until stopped; a producer that failed is replaced by one that takes over its source."""
        _produce(connect, stop, self.topic, self._source, patience_seconds, self._send)

    def _send(self, producer: Producer) -> bool:
        """Send one batch; returns whether the producer is still usable."""
        messages = self.messages()
        keys = self.keys(len(messages)) if self._has_keys else []
        number = self.call(self._source, messages, keys)
        try:
            receipts = producer.send_batch(self.batch(messages, keys))
        except HeadraceError as error:
            self.end(number, outcome_of(error), [], f"{error.code}: {error}")
            return False
        partitions, offsets = receipts.column("partition").to_pylist(), receipts.column("offset").to_pylist()
        places = [
            None if partition is None else (partition, offset)
            for partition, offset in zip(partitions, offsets, strict=True)
        ]
        self.end(number, "ok", places)
        return True


class MessagePublisher(_Sender):
    """Sends messages one by one, several under way, as a producer with an id."""

    def run(self, connect: Connect, stop: threading.Event, patience_seconds: float) -> None:
        """Publish until stopped."""
        _produce(connect, stop, self.topic, self.name, patience_seconds, self._send)

    def _send(self, producer: Producer) -> bool:
        messages = self.messages()
        keys = self.keys(len(messages))
        calls, futures = [], []
        is_good = True
        for message, key in zip(messages, keys, strict=True):
            number = self.call(self.name, [message], [key])
            try:
                futures.append(producer.send(self.value(message), key=key.encode()))
            except HeadraceError as error:
                self.end(number, "failed", [], f"{error.code}: {error}")
                is_good = False
                break
            calls.append(number)
        wait(futures)
        for number, future in zip(calls, futures, strict=True):
            try:
                receipt = future.result()
            except HeadraceError as error:
                self.end(number, outcome_of(error), [], f"{error.code}: {error}")
                is_good = False
                continue
            partition, offset, _ = receipt
            self.end(number, "ok", [None if partition is None or offset is None else (partition, offset)])
        return is_good


class StagePublisher(_Sender):
    """Puts rows aside and publishes them in one commit with a commit key; asks again until it is answered."""

    def run(self, connect: Connect, stop: threading.Event, patience_seconds: float) -> None:
        """Publish until stopped. A commit without an answer is repeated with the same key."""
        with connect() as client:
            commit = 0
            while not stop.is_set():
                commit += 1
                messages = self.messages()
                keys = self.keys(len(messages))
                number = self.call(self.name, messages, keys)
                self._publish(client, stop, commit, number, self.batch(messages, keys))

    def _publish(self, client: Client, stop: threading.Event, commit: int, number: int, batch: pa.RecordBatch) -> None:
        was_asked, attempt = False, 0
        while True:
            attempt += 1
            try:
                # In two stages with unique names: what an earlier attempt staged must not count.
                half = batch.num_rows // 2
                parts = [part for part in (batch.slice(0, half), batch.slice(half)) if part.num_rows]
                stages = [
                    client.stage(self.topic, [part], f"{self.name}-{commit}-{attempt}-{place}")
                    for place, part in enumerate(parts)
                ]
                was_asked = True
                client.publish_staged(self.topic, stages, CommitKey(self.name, commit))
            except HeadraceError as error:
                if stop.wait(_PAUSE_SECONDS):
                    self.end(number, "unknown" if was_asked else "failed", [], f"{error.code}: {error}")
                    return
            else:
                self.end(number, "ok", [])
                return


def _produce(
    connect: Connect,
    stop: threading.Event,
    topic: str,
    producer_id: str | None,
    patience_seconds: float,
    send: Callable[[Producer], bool],
) -> None:
    """Send by a producer until stopped; one that failed is replaced."""
    with connect() as client:
        while not stop.is_set():
            try:
                producer = client.producer(topic, producer_id=producer_id, timeout_seconds=patience_seconds)
            except HeadraceError:
                stop.wait(_PAUSE_SECONDS)
                continue
            try:
                while not stop.is_set() and send(producer):
                    pass
            finally:
                producer.close()

"""A server that is killed again and again while clients of every kind talk to it over HTTP.

Nothing that was acknowledged is lost, nothing is there twice: clients that retry with producer id and seqno end with
exactly one of each message, and consumers go on where they were.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.messages import PUBLISH_SCHEMA
from tests.broker.background import Background, eventually
from tests.protocols.http.servers import QueueClient
from tests.server_process import ServerProcess

LIVES = 4
# What every client gets done in each life of the server, before it is killed in the middle of the next.
STEPS_PER_LIFE = 25
PARTITIONS = 3


class Load:
    """A client in a thread, which goes on until it is stopped, whatever happens to the server."""

    def __init__(self, server: ServerProcess, stopped: threading.Event) -> None:
        self.steps_done = 0
        self._server = server
        self._stopped = stopped
        self._client = QueueClient(server.port)
        self._thread = Background(self._run)

    def finish(self) -> None:
        """Wait for the end; what went wrong is raised here."""
        self._thread.result()

    @property
    def failed(self) -> bool:
        return self._thread.is_done and not self._stopped.is_set()

    def _run(self) -> None:
        with self._client:
            while not self._stopped.is_set():
                self.step()
                self.steps_done += 1

    def step(self) -> None:
        """One thing that must be done before the next."""
        raise NotImplementedError

    def attempt(self, method: str, path: str, body: bytes, content_type: str = "application/json") -> Any | None:
        """The answer, which is good if there is one; none if the server died on the way, the outcome being unknown."""
        while True:
            try:
                status, _, answer = self._client.send(method, path, body, {"content-type": content_type})
            except ConnectionRefusedError:
                # Nothing was sent.
                assert not self._stopped.is_set(), "there is no server any more"
                self._await_server()
                continue
            except (OSError, http.client.HTTPException):
                self._await_server()
                return None
            if status == 500 and b"nothing to read" in answer:
                return {}
            assert status == 200, answer
            return json.loads(answer)

    def _await_server(self) -> None:
        time.sleep(0.01)
        self._client.port = self._server.port


class QueueProducer(Load):
    """Produces on the queue API, which has no numbers: what is in doubt is not sent again."""

    def __init__(self, server: ServerProcess, stopped: threading.Event, producer_id: int) -> None:
        self.acknowledged: list[str] = []
        self.in_doubt: list[str] = []
        self.producer_id = producer_id
        super().__init__(server, stopped)

    def step(self) -> None:
        message = f"{self.producer_id}:{len(self.acknowledged) + len(self.in_doubt)}"
        body = {"topic": "queue", "producer_id": self.producer_id, "message": message}
        answer = self.attempt("POST", "/producer/produce", json.dumps(body).encode())
        (self.in_doubt if answer is None else self.acknowledged).append(message)


class QueueConsumer(Load):
    """Reads on the queue API; a message whose answer was lost on the way is passed over."""

    def __init__(self, server: ServerProcess, stopped: threading.Event, consumer_id: int) -> None:
        self.consumer_id = consumer_id
        self.received: list[str] = []
        self.in_doubt = 0
        super().__init__(server, stopped)

    def step(self) -> None:
        body = json.dumps({"topic": "queue", "consumer_id": self.consumer_id}).encode()
        answer = self.attempt("GET", "/consumer/consume", body)
        if answer is None:
            self.in_doubt += 1
        elif answer:
            self.received.append(answer["message"])


class Publisher(Load):
    """Publishes under /v1 with producer id and seqno, and retries until it has the receipts."""

    def __init__(self, server: ServerProcess, stopped: threading.Event, name: str, rows: int, as_arrow: bool) -> None:
        self.name = name
        self.published = 0
        self.duplicates = 0
        self._rows = rows
        self._as_arrow = as_arrow
        super().__init__(server, stopped)

    def step(self) -> None:
        numbers = range(self.published + 1, self.published + 1 + self._rows)
        body = self._arrow(numbers) if self._as_arrow else self._json(numbers)
        content_type = "application/vnd.apache.arrow.stream" if self._as_arrow else "application/json"
        while (answer := self.attempt("POST", "/v1/topics/numbered/messages", body, content_type)) is None:
            pass
        statuses = [receipt["status"] for receipt in answer["receipts"]]
        # A commit is there as a whole or not at all.
        assert statuses in (["written"] * self._rows, ["duplicate"] * self._rows)
        self.duplicates += statuses.count("duplicate")
        self.published += self._rows

    def _json(self, numbers: range) -> bytes:
        messages = [
            {
                "value": f"{self.name}:{number}",
                "producer_id": self.name,
                "seqno": number,
                "partition": number % PARTITIONS,
            }
            for number in numbers
        ]
        return json.dumps({"messages": messages}).encode()

    def _arrow(self, numbers: range) -> bytes:
        columns: dict[str, list[Any]] = {
            "value": [f"{self.name}:{number}".encode() for number in numbers],
            "producer_id": [self.name] * self._rows,
            "seqno": list(numbers),
        }
        batch = pa.record_batch(
            {name: pa.array(values, PUBLISH_SCHEMA.field(name).type) for name, values in columns.items()}
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        body: bytes = sink.getvalue().to_pybytes()
        return body


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(f"file:{tmp_path}/store?segment_frames=40")
    yield process
    process.close()


def in_order(broker: Broker, topic: str) -> list[str]:
    """All values of a topic in the order of its commits."""
    table = pa.Table.from_batches(
        [broker.fetch(topic, partition, 0, max_messages=1_000_000) for partition in range(PARTITIONS)]
    ).sort_by([("timestamp", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    return [value.decode() for value in table["value"].to_pylist()]


def test_kills_lose_nothing_and_double_nothing(server: ServerProcess) -> None:
    with QueueClient(server.port) as client:
        client.create("queue", partitions=PARTITIONS)
        client.create("numbered", partitions=PARTITIONS)
        producer_ids = [client.producer("queue") for _ in range(2)]
        consumer_ids = [client.consumer("queue") for _ in range(2)]
    stopped = threading.Event()
    producers = [QueueProducer(server, stopped, producer_id) for producer_id in producer_ids]
    consumers = [QueueConsumer(server, stopped, consumer_id) for consumer_id in consumer_ids]
    publishers = [
        Publisher(server, stopped, "json-1", rows=1, as_arrow=False),
        Publisher(server, stopped, "json-7", rows=7, as_arrow=False),
        Publisher(server, stopped, "arrow-50", rows=50, as_arrow=True),
    ]
    loads: list[Load] = [*producers, *consumers, *publishers]
    try:
        for life in range(1, LIVES + 1):
            until_done(loads, life * STEPS_PER_LIFE)
            server.kill()
            server.start()
        until_done(loads, (LIVES + 1) * STEPS_PER_LIFE)
    finally:
        stopped.set()
        for load in loads:
            load.finish()
    server.kill()
    with Broker.open(server.store) as broker:
        check_queue(broker, producers, consumers)
        check_numbered(broker, publishers)
    server.start()
    with QueueClient(server.port) as client:
        check_going_on(client, producers[0], consumers[0])


def until_done(loads: list[Load], steps: int) -> None:
    eventually(lambda: any(load.failed for load in loads) or all(load.steps_done >= steps for load in loads))
    for load in loads:
        if load.failed:
            load.finish()


def check_queue(broker: Broker, producers: list[QueueProducer], consumers: list[QueueConsumer]) -> None:
    written = in_order(broker, "queue")
    there = set(written)
    assert len(there) == len(written)
    acknowledged = {message for producer in producers for message in producer.acknowledged}
    in_doubt = {message for producer in producers for message in producer.in_doubt}
    assert acknowledged <= there <= acknowledged | in_doubt
    for producer in producers:
        # One that the server was at work on when it was killed, and one that met the end of its connection.
        assert len(producer.in_doubt) <= 2 * LIVES
        own = [message for message in written if message in {*producer.acknowledged, *producer.in_doubt}]
        assert own == sorted(own, key=lambda message: int(message.partition(":")[2]))
    for consumer in consumers:
        position = len(written) - broker.registrations.size("queue", consumer.consumer_id)
        assert len(set(consumer.received)) == len(consumer.received)
        seen = set(consumer.received)
        assert consumer.received == [message for message in written[:position] if message in seen]
        # What an answer that was lost on the way had, and nothing more, is passed over.
        assert position - len(consumer.received) <= consumer.in_doubt <= 2 * LIVES


def check_numbered(broker: Broker, publishers: list[Publisher]) -> None:
    written = in_order(broker, "numbered")
    for publisher in publishers:
        expected = [f"{publisher.name}:{number}" for number in range(1, publisher.published + 1)]
        own = [message for message in written if message.startswith(f"{publisher.name}:")]
        assert sorted(own) == sorted(expected)
        assert broker.last_seqno("numbered", publisher.name) == publisher.published
    assert len(written) == sum(publisher.published for publisher in publishers)


def check_going_on(client: QueueClient, producer: QueueProducer, consumer: QueueConsumer) -> None:
    """What is left after all kills is read to the end, and what comes then too."""
    left = client.size("queue", consumer.consumer_id)
    rest = client.rest("queue", consumer.consumer_id)
    assert len(rest) == left
    assert not set(rest) & set(consumer.received)
    client.produce("queue", producer.producer_id, "one more")
    assert client.rest("queue", consumer.consumer_id) == ["one more"]

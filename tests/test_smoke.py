"""The first answer after a change: on each engine, each protocol writes, reads and commits. `make quick` runs it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import confluent_kafka as confluent
import httpx
import pytest

import headrace
from tests.ports import ReservedPort
from tests.server_process import ServerProcess

PATIENCE_SECONDS = 60.0
VALUES = ["first", "second"]
GROUP = "smoke"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Site:
    """A running server, and where Kafka's clients connect."""

    server: ServerProcess
    kafka: str


@pytest.fixture(scope="module", params=["memory", "disk", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server on a new store of each engine."""
    if request.param == "postgres":
        store = request.getfixturevalue("postgres").fresh_url()
    else:
        store = "memory:" if request.param == "memory" else f"file:{tmp_path_factory.mktemp('smoke')}/store"
    with ReservedPort() as port:
        kafka = f"127.0.0.1:{port.number}"
        server = ServerProcess(store, "--kafka", kafka, "--set", "kafka.rebalance_delay_seconds=0.05")
        yield Site(server, kafka)
        server.close()


def over_http(site: Site, topic: str) -> list[str]:
    with httpx.Client(base_url=f"http://127.0.0.1:{site.server.port}/v1/topics/{topic}/") as client:
        for value in VALUES:
            client.post("messages", json={"messages": [{"value": value}]}).raise_for_status()
        answer = client.get("partitions/0/messages", params={"offset": 0}).raise_for_status().json()
        client.put(f"groups/{GROUP}", json={}).raise_for_status()
        offsets = [{"partition": 0, "offset": len(VALUES)}]
        client.post(f"groups/{GROUP}/offsets", json={"offsets": offsets}).raise_for_status()
    return [message["value"] for message in answer["messages"]]


def over_flight(site: Site, topic: str) -> list[str]:
    read: list[str] = []
    with headrace.connect(site.server.url) as client:
        with client.producer(topic) as producer:
            for value in VALUES:
                producer.send(value.encode())
        with client.consumer(topic, GROUP) as consumer:
            while len(read) < len(VALUES):
                batch = consumer.poll(timeout=PATIENCE_SECONDS)
                assert batch.num_rows, f"only {read} arrived"
                read += [value.decode() for value in batch.column("value").to_pylist()]
            consumer.commit()
    return read


def over_kafka(site: Site, topic: str) -> list[str]:
    servers = {"bootstrap.servers": site.kafka}
    producer = confluent.Producer(servers | {"enable.idempotence": True})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = confluent.Consumer(servers | {"group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    messages = consumer.consume(len(VALUES), PATIENCE_SECONDS)
    consumer.commit(asynchronous=False)
    consumer.close()
    return [(message.value() or b"").decode() for message in messages]


@pytest.mark.parametrize("protocol", [over_http, over_flight, over_kafka])
def test_what_is_written_is_read_and_committed(site: Site, protocol: Callable[[Site, str], list[str]]) -> None:
    topic = f"smoke-{next(_numbers)}"
    with headrace.connect(site.server.url) as client:
        client.create_topic(topic)
        assert protocol(site, topic) == VALUES
        assert client.committed(topic, GROUP) == {0: len(VALUES)}

"""What a page reads of a topic is little, however large its messages are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.aio import AsyncClient
from headrace.client.client import Client
from headrace.console.messages import reader
from headrace.console.messages.reader import Found, MessageQuery, Tail, read
from headrace.testing import embedded


@pytest.fixture
def client() -> Iterator[Client]:
    with embedded() as made:
        yield made


def publish(client: Client, topic: str, sizes: list[int], partition: int = 0) -> None:
    columns = {"value": [bytes(size) for size in sizes], "partition": pa.array([partition] * len(sizes), pa.int32())}
    with client.producer(topic) as producer:
        producer.send_batch(pa.RecordBatch.from_pydict(columns))


def found(client: Client, topic: str, wanted: MessageQuery) -> Found:
    return asyncio.run(read(AsyncClient(client), client.describe_topic(topic), wanted))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of 10,000 bytes."""
    monkeypatch.setattr(reader, "READ_BYTES", 10_000)
    monkeypatch.setattr(reader, "PARTITION_BYTES_MIN", 1_000)


def test_the_newest_of_small_messages(client: Client) -> None:
    client.create_topic("small", partitions=2)
    for partition in (0, 1):
        publish(client, "small", [10] * 100, partition)
    seen = found(client, "small", MessageQuery(count=50))
    assert len(seen.messages) == 50 and not seen.is_cut and seen.partitions_left_out == 0
    assert {message.offset for message in seen.messages if message.partition == 1} == set(range(50, 100))


def test_of_large_messages_the_newest_that_fit(client: Client) -> None:
    client.create_topic("large")
    publish(client, "large", [10] * 10 + [4_000] * 10)
    seen = found(client, "large", MessageQuery(count=50))
    assert [message.offset for message in seen.messages] == [19, 18] and seen.is_cut
    oldest = found(client, "large", MessageQuery(start="offset", offset=5, count=10))
    assert [message.offset for message in oldest.messages] == [5, 6, 7, 8, 9, 10, 11] and oldest.is_cut


def test_one_message_larger_than_the_page_is_shown(client: Client) -> None:
    client.create_topic("giant")
    publish(client, "giant", [50_000] * 3)
    assert [message.offset for message in found(client, "giant", MessageQuery()).messages] == [2]


def test_partitions_are_left_out_once_the_bytes_are_used_up(client: Client) -> None:
    client.create_topic("wide", partitions=32)
    for partition in range(32):
        publish(client, "wide", [2_000], partition)
    seen = found(client, "wide", MessageQuery())
    assert len(seen.messages) == 5 and seen.partitions_left_out == 24


def test_a_tail_reads_as_little(client: Client) -> None:
    client.create_topic("tail")
    publish(client, "tail", [10])
    wanted = MessageQuery(count=50)
    first = found(client, "tail", wanted)
    tail = Tail(client.describe_topic("tail"), wanted, first.messages)
    publish(client, "tail", [4_000] * 10)
    assert asyncio.run(tail.look(AsyncClient(client)))
    assert [message.offset for message in tail.messages] == [10, 9, 0] and tail.passed_over == 8

"""Reading ranges batch by batch, and waiting for news, the same on every transport."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from headrace.client import Client
from headrace.core.errors import InvalidInput, OffsetOutOfRange


def publish(client: Client, topic: str, values: list[bytes]) -> None:
    with client.producer(topic) as producer:
        producer.send_batch(pa.record_batch({"value": pa.array(values)}))


def test_a_range_comes_in_batches_of_the_columns_asked_for(client: Client) -> None:
    client.create_topic("orders")
    publish(client, "orders", [b"%d" % number for number in range(10)])
    batches = list(client.scan("orders", 0, 2, 9, columns=["offset", "value"], max_messages=3))
    assert [batch.num_rows for batch in batches] == [3, 3, 1]
    assert batches[0].schema.names == ["offset", "value"]
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(2, 9))


def test_a_range_ends_where_nothing_more_is_there(client: Client) -> None:
    client.create_topic("orders")
    publish(client, "orders", [b"a", b"b"])
    assert [batch.num_rows for batch in client.scan("orders", 0, 0, 100)] == [2]
    assert list(client.scan("orders", 0, 1, 1)) == []
    with pytest.raises(OffsetOutOfRange):
        list(client.scan("orders", 0, 5, 9))


def test_news_are_waited_for(client: Client) -> None:
    client.create_topic("orders", partitions=2)
    assert client.await_offsets("orders", {0: 0, 1: 0}, 0.0) == {0: (0, 0), 1: (0, 0)}
    # A partition that is not known is news.
    assert client.await_offsets("orders", {0: 0}, 300.0) == {0: (0, 0), 1: (0, 0)}
    found: list[dict[int, tuple[int, int]]] = []
    waiting = threading.Thread(target=lambda: found.append(client.await_offsets("orders", {0: 0, 1: 0}, 50.0)))
    waiting.start()
    publish(client, "orders", [b"a"])
    waiting.join(60.0)
    assert found == [{0: (0, 1), 1: (0, 0)}]
    with pytest.raises(InvalidInput):
        client.await_offsets("orders", {}, -1.0)

"""Reading ranges batch by batch, and waiting for notifications, the same on every transport."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.client import Client
from headrace.core.errors import Closed, InvalidInput, OffsetOutOfRange
from headrace.testing import EmbeddedTransport
from headrace.testing.transport import EmbeddedReading
from headrace.wire.tickets import Reading


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


def test_a_range_ends_with_the_last_message(client: Client) -> None:
    client.create_topic("orders")
    publish(client, "orders", [b"a", b"b"])
    assert [batch.num_rows for batch in client.scan("orders", 0, 0, 100)] == [2]
    assert list(client.scan("orders", 0, 1, 1)) == []
    with pytest.raises(OffsetOutOfRange):
        list(client.scan("orders", 0, 5, 9))
    with pytest.raises(InvalidInput):
        list(client.scan("orders", 0, 0, 2, columns=["value", "colour"]))


class StopsOnce(EmbeddedTransport):
    """A way on which the first reading is of a server that stops when told so."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.stopping = threading.Event()
        self._readings = 0

    def read(self, ticket: Reading) -> EmbeddedReading:
        self._readings += 1
        return EmbeddedReading(self._broker, ticket, self.stopping) if self._readings == 1 else super().read(ticket)


def test_a_range_continues_where_a_server_stopped(broker: Broker) -> None:
    transport = StopsOnce(broker)
    with Client(transport) as client:
        client.create_topic("orders")
        publish(client, "orders", [b"a", b"b", b"c"])
        batches = client.scan("orders", 0, 0, 3, max_messages=1)
        values = next(batches).column("value").to_pylist()
        transport.stopping.set()
        values += [value for batch in batches for value in batch.column("value").to_pylist()]
        assert values == [b"a", b"b", b"c"]


def test_messages_are_read_though_a_server_stops(broker: Broker) -> None:
    transport = StopsOnce(broker)
    transport.stopping.set()
    with Client(transport) as client:
        client.create_topic("orders")
        publish(client, "orders", [b"a"])
        assert client.read("orders").column("value").to_pylist() == [b"a"]


def test_a_range_ends_with_its_client(broker: Broker) -> None:
    client = Client(EmbeddedTransport(broker))
    client.create_topic("orders")
    publish(client, "orders", [b"a", b"b"])
    batches = client.scan("orders", 0, 0, 2, max_messages=1)
    assert next(batches).num_rows == 1
    client.close()
    with pytest.raises(Closed, match="the client"):
        next(batches)


def test_columns_that_are_null_in_the_beginning_come_whole(client: Client) -> None:
    client.create_topic("orders")
    rows = []
    with client.producer("orders") as producer:
        for number in range(40):
            key, seqno = [(None, None), (b"k", None), (None, number), (b"k", number)][number // 3 % 4]
            message = {"value": [b"%d" % number], "key": pa.array([key], pa.binary())}
            if seqno is not None:
                message |= {"producer_id": ["p"], "seqno": pa.array([seqno], pa.int64())}
            producer.send_batch(pa.record_batch(message))
            rows.append((b"%d" % number, key, seqno))
    for columns in (None, ["value", "key", "seqno"]):
        batches = list(client.scan("orders", 0, 0, 40, columns=columns, max_messages=2))
        assert all(batch.schema.equals(batches[0].schema) for batch in batches)
        found = [(row["value"], row["key"], row["seqno"]) for batch in batches for row in batch.to_pylist()]
        assert found == rows
    keys = [key for batch in client.scan("orders", 0, 0, 40, columns=["key"]) for key in batch["key"].to_pylist()]
    assert keys == [key for _, key, _ in rows]


def test_news_are_waited_for(client: Client) -> None:
    client.create_topic("orders", partitions=2)
    assert client.await_offsets("orders", {0: 0, 1: 0}, 0.0) == {0: (0, 0), 1: (0, 0)}
    # A partition that is not known is notifications.
    assert client.await_offsets("orders", {0: 0}, 300.0) == {0: (0, 0), 1: (0, 0)}
    found: list[dict[int, tuple[int, int]]] = []
    waiting = threading.Thread(target=lambda: found.append(client.await_offsets("orders", {0: 0, 1: 0}, 50.0)))
    waiting.start()
    publish(client, "orders", [b"a"])
    waiting.join(60.0)
    assert found == [{0: (0, 1), 1: (0, 0)}]
    with pytest.raises(InvalidInput):
        client.await_offsets("orders", {}, -1.0)


def test_a_read_stays_within_its_bytes_and_has_a_message(client: Client) -> None:
    client.create_topic("orders")
    publish(client, "orders", [bytes(1_000)] * 10)
    assert client.read("orders", max_bytes=3_500).num_rows == 3
    assert client.read("orders", max_bytes=1).num_rows == 1
    assert client.read("orders", max_messages=2, max_bytes=1 << 20, decode=False).num_rows == 2
    with pytest.raises(InvalidInput, match="max_bytes"):
        client.read("orders", max_bytes=0)


def test_a_read_decodes_no_more_than_its_bytes(client: Client) -> None:
    client.create_topic("packed")
    packed = pa.Codec("gzip").compress(bytes(100_000), asbytes=True)
    with client.producer("packed") as producer:
        producer.send_batch(pa.record_batch({"value": [packed] * 10, "codec": ["gzip"] * 10}))
    assert client.read("packed", max_bytes=250_000).num_rows == 2

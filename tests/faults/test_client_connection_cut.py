"""A connection that is cut, also in the middle of a batch, while the server lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.client import Client, connect
from headrace.core.errors import OutcomeUnknown
from headrace.protocols.flight.server import FlightServer
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.client.proxy import Proxy


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Broker.open("memory:") as broker:
        server = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
        made = Proxy(server.port)
        yield made
        made.close()
        assert server.stop(PATIENCE_SECONDS)


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Client]:
    with connect(f"headrace://127.0.0.1:{proxy.port}") as made:
        made.create_topic("orders", partitions=2)
        yield made


def values_of(client: Client) -> list[bytes]:
    batches = [client.read("orders", partition, 0, 1_000_000) for partition in client.offsets("orders")]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def batch_of(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"%d" % (first + place) for place in range(count)])})


def test_batches_that_are_cut_in_the_middle_are_sent_again_once(proxy: Proxy, client: Client) -> None:
    with client.producer("orders", producer_id="p") as producer:
        futures = []
        for number in range(40):
            if number % 8 == 3:
                # What was sent since the last time is enough for it to have come.
                eventually(lambda: proxy.cuts == number // 8)  # noqa: B023
                proxy.cut_after(30_000)
            futures.append(producer.submit_batch(batch_of(number * 1_000, 1_000)))
        for future in futures:
            assert future.result(PATIENCE_SECONDS).num_rows == 1_000
    assert proxy.cuts == 5
    assert Counter(values_of(client)) == Counter(b"%d" % number for number in range(40_000))


def test_without_an_id_a_batch_whose_answer_was_lost_is_not_sent_again(proxy: Proxy, client: Client) -> None:
    with client.producer("orders") as producer:
        assert producer.send_batch(batch_of(0, 10)).num_rows == 10
        # More than the pings of an idle connection, and less than the batch.
        proxy.cut_after(20_000)
        with pytest.raises(OutcomeUnknown):
            producer.send_batch(batch_of(10, 5_000))
        assert producer.send_batch(batch_of(10_000, 10)).num_rows == 10
        # The failure was reported by `send_batch`, and is not raised again.
        producer.flush()
    assert max(Counter(values_of(client)).values()) == 1


def test_rows_with_seqnos_of_their_own_are_sent_again(proxy: Proxy, client: Client) -> None:
    rows = pa.record_batch(
        {
            "value": pa.array([b"%d" % number for number in range(5_000)]),
            "producer_id": pa.array(["mine"] * 5_000),
            "seqno": pa.array(range(5_000)),
        }
    )
    with client.producer("orders") as producer:
        producer.flush()
        proxy.cut_after(20_000)
        assert producer.send_batch(rows).num_rows == 5_000
    assert proxy.cuts == 1
    assert len(values_of(client)) == 5_000


def test_consumer_reads_on_where_it_was(proxy: Proxy, client: Client) -> None:
    with client.producer("orders", producer_id="p") as producer, client.consumer("orders", group="g") as consumer:
        seen: Counter[bytes] = Counter()
        for number in range(10):
            producer.send_batch(batch_of(number * 500, 500))
            if number % 3 == 1:
                proxy.cut()
            seen.update(consumer.poll(200, timeout=1.0).column("value").to_pylist())
        while len(seen) < 5_000:
            batch = consumer.poll(timeout=PATIENCE_SECONDS)
            assert batch.num_rows, f"only {len(seen)} came"
            seen.update(batch.column("value").to_pylist())
        consumer.commit()
    assert seen == Counter(b"%d" % number for number in range(5_000))
    assert client.describe_group("orders", "g").lag_messages == 0

"""The producer, the same on every transport."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace.client import Client, Receipt
from headrace.core.errors import (
    Closed,
    CodecNotAllowed,
    InvalidInput,
    InvalidMessage,
    MessageTooLarge,
    ProducerFenced,
    TopicNotFound,
)


def values_of(client: Client, topic: str) -> list[bytes]:
    batches = [client.read(topic, partition, 0, 100_000) for partition in client.offsets(topic)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def batch_of(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def test_messages_are_written_in_the_order_sent_with_a_receipt_each(client: Client) -> None:
    client.create_topic("orders")
    with client.producer("orders") as producer:
        futures = [producer.send(b"%d" % number) for number in range(2_000)]
        producer.flush()
        assert all(future.done() for future in futures)
    assert [future.result().offset for future in futures] == list(range(2_000))
    assert values_of(client, "orders") == [b"%d" % number for number in range(2_000)]


def test_every_field_of_a_message_arrives(client: Client) -> None:
    client.create_topic("orders", partitions=4)
    created = datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC)
    with client.producer("orders", "till-7", "lane-1") as producer:
        producer.send(b"plain")
        receipt = producer.send(
            bytearray(b"full"), key=b"k", attributes={"kind": b"sale"}, partition=3, created_at=created
        ).result(60)
    row = client.read("orders", 3, receipt.offset or 0).to_pylist()[0]
    assert (row["value"], row["key"], row["attributes"], row["partition"]) == (b"full", b"k", [("kind", b"sale")], 3)
    assert (row["producer_id"], row["message_group_id"], row["seqno"]) == ("till-7", "lane-1", 2)
    assert row["created_at"] == created


def test_batches_and_messages_keep_their_order_whatever_columns_they_have(client: Client) -> None:
    client.create_topic("orders")
    with client.producer("orders", producer_id="p") as producer:
        first = producer.send(b"0")
        receipts = producer.send_batch(batch_of(b"1", b"2"))
        keyed = pa.record_batch({"key": pa.array([b"k"], pa.large_binary()), "value": pa.array(["3"])})
        producer.send_batch(keyed)
        last = producer.send(b"4", attributes={"a": b"b"})
    assert first.result() == Receipt(0, 0, "written")
    assert receipts.to_pylist() == [{"partition": 0, "offset": n, "status": "written"} for n in (1, 2)]
    assert last.result().offset == 4
    assert values_of(client, "orders") == [b"0", b"1", b"2", b"3", b"4"]
    assert client.last_seqno("orders", "p") == 5


def test_seqnos_continue_where_the_last_producer_ended(client: Client) -> None:
    client.create_topic("orders")
    for run in range(3):
        with client.producer("orders", producer_id="p") as producer:
            assert producer.send(b"%d" % run).result(60).status == "written"
    assert client.last_seqno("orders", "p") == 3


def test_second_producer_takes_over_and_the_first_is_fenced(client: Client) -> None:
    client.create_topic("orders")
    first = client.producer("orders", producer_id="p")
    first.send(b"1").result(60)
    with client.producer("orders", producer_id="p") as second:
        assert second.send(b"2").result(60).status == "written"
        with pytest.raises(ProducerFenced) as fenced:
            first.send(b"never").result(60)
        assert fenced.value.producer_id == "p"
        with pytest.raises(ProducerFenced):
            first.send(b"never")
        # All that failed was raised already.
        first.flush()
        second.send(b"3").result(60)
    first.close()
    assert values_of(client, "orders") == [b"1", b"2", b"3"]


def test_faulty_messages_are_refused_where_they_are_sent(client: Client) -> None:
    client.create_topic("orders", message_bytes_max=10, codecs=["raw"])
    with client.producer("orders") as producer:
        with pytest.raises(MessageTooLarge):
            producer.send(b"x" * 8, key=b"yyy")
        with pytest.raises(MessageTooLarge):
            producer.send(b"x" * 8, attributes={"a": b"bc"})
        for partition in (1, -1, True):
            with pytest.raises(InvalidMessage):
                producer.send(b"x", partition=partition)
        with pytest.raises(InvalidMessage):
            producer.send("text")
        with pytest.raises(InvalidMessage):
            producer.send(b"x", attributes={"a": 1})  # type: ignore[dict-item]
        producer.send(b"good").result(60)
    with pytest.raises(CodecNotAllowed):
        client.producer("orders", codec="zstd")
    with pytest.raises(TopicNotFound):
        client.producer("nothing")
    assert values_of(client, "orders") == [b"good"]


def test_faulty_batch_is_refused_alone(client: Client) -> None:
    client.create_topic("orders", message_bytes_max=10)
    with client.producer("orders", producer_id="p") as producer:
        sent = [producer.submit_batch(batch_of(b"%d" % n if n % 3 else b"x" * 11, b"y")) for n in range(30)]
        with pytest.raises(MessageTooLarge):
            producer.flush()
        outcomes = [future.exception(60) for future in sent]
    assert [error is not None for error in outcomes] == [n % 3 == 0 for n in range(30)]
    assert all(isinstance(error, MessageTooLarge) for error in outcomes if error)
    assert len(values_of(client, "orders")) == 40
    with client.producer("orders", producer_id="p") as producer:
        other = pa.record_batch({"value": [b"v"], "producer_id": ["q"]})
        for wrong in (pa.record_batch({"key": [b"k"]}), other, "batch"):
            with pytest.raises(InvalidInput):
                producer.send_batch(wrong)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lzop"])
def test_values_are_compressed_on_the_way_and_plain_for_the_reader(client: Client, codec: str) -> None:
    client.create_topic("orders")
    with client.producer("orders", codec=codec) as producer:
        producer.send(b"one" * 1_000)
        producer.send_batch(batch_of(b"two" * 1_000))
    assert values_of(client, "orders") == [b"one" * 1_000, b"two" * 1_000]
    stored = client.read("orders", decode=False)
    assert stored.column("codec").to_pylist() == [codec, codec]
    assert stored.column("value").nbytes < 500


def test_futures_are_futures_for_everyone(client: Client) -> None:
    client.create_topic("orders")
    called = threading.Event()
    # What is collected waits for longer than this test lasts, unless it is sent off.
    with client.producer("orders", linger_seconds=600) as producer:
        futures = [producer.send(b"%d" % number) for number in range(10)]
        futures[0].add_done_callback(lambda future: called.set())
        assert not futures[0].cancel()
        assert not futures[0].done()
        flushing = threading.Thread(target=producer.flush)
        flushing.start()
        done, pending = concurrent.futures.wait(futures, timeout=60)
        assert (len(done), len(pending)) == (10, 0)
        assert called.wait(60)
        assert {future.result().offset for future in concurrent.futures.as_completed(futures, 60)} == set(range(10))
        flushing.join()

        async def one_more() -> Receipt:
            awaited = asyncio.wrap_future(producer.send(b"more"))
            await asyncio.to_thread(producer.flush)
            return await awaited

        assert asyncio.run(one_more()).offset == 10
        assert "finished" in repr(futures[3])


def test_many_threads_share_a_producer(client: Client) -> None:
    client.create_topic("orders", partitions=3)
    with client.producer("orders", producer_id="p", batch_bytes_max=2_000) as producer:

        def send(thread: int) -> None:
            for number in range(300):
                producer.send(b"%d-%d" % (thread, number), partition=thread % 3)

        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = values_of(client, "orders")
    assert len(values) == len(set(values)) == 1_800
    for thread_number in range(6):
        mine = [value for value in values if value.startswith(b"%d-" % thread_number)]
        assert mine == [b"%d-%d" % (thread_number, number) for number in range(300)]


def test_closed_producer_takes_nothing(client: Client) -> None:
    client.create_topic("orders")
    producer = client.producer("orders")
    future = producer.send(b"last")
    producer.close()
    assert future.result(0).offset == 0
    with pytest.raises(Closed):
        producer.send(b"later")


def test_deleted_topic_ends_the_producer(client: Client) -> None:
    client.create_topic("orders")
    producer = client.producer("orders", producer_id="p")
    producer.send(b"1").result(60)
    client.delete_topic("orders")
    with pytest.raises(TopicNotFound):
        producer.send(b"2").result(60)
    producer.close()

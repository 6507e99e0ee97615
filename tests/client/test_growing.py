"""Partitions that are added while a topic is read without a group, the same on every transport."""

from __future__ import annotations

import time

from headrace.client import Client, Consumer

ON_POSTGRES = True

PATIENCE_SECONDS = 60.0


def send(client: Client, value: bytes, partition: int) -> None:
    with client.producer("orders") as producer:
        producer.send(value, partition=partition).result(PATIENCE_SECONDS)


def take(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(values) < count and time.monotonic() < deadline:
        values += consumer.poll(timeout=1.0).column("value").to_pylist()
    return values


def test_a_consumer_without_a_group_reads_them_from_their_beginning(client: Client) -> None:
    client.create_topic("orders")
    send(client, b"old", 0)
    with client.consumer("orders", start="latest") as consumer:
        assert consumer.assignment == [0]
        client.alter_topic("orders", partitions=3)
        send(client, b"new", 2)
        assert take(consumer, 1) == [b"new"]
        assert consumer.positions() == {0: 1, 2: 1}
        consumer.seek("earliest")
        assert sorted(take(consumer, 2)) == [b"new", b"old"]
        assert consumer.assignment == [0, 1, 2]


def test_following_all_partitions_takes_them_in_and_following_some_does_not(client: Client) -> None:
    client.create_topic("orders")
    with client.follow("orders") as everything, client.follow("orders", [0], start=0) as first:
        client.alter_topic("orders", partitions=2)
        send(client, b"in 1", 1)
        batch = everything.next(PATIENCE_SECONDS)
        assert batch is not None and batch.column("value").to_pylist() == [b"in 1"]
        send(client, b"in 0", 0)
        batch = first.next(PATIENCE_SECONDS)
        assert batch is not None and batch.column("value").to_pylist() == [b"in 0"]


def test_a_member_of_a_group_is_given_them_by_the_group(client: Client) -> None:
    client.create_topic("orders")
    with client.consumer("orders", group="billing", session_timeout_seconds=0.3) as consumer:
        client.alter_topic("orders", partitions=2)
        send(client, b"in 1", 1)
        assert take(consumer, 1) == [b"in 1"]
        assert consumer.assignment == [0, 1]

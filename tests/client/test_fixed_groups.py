"""Consumers of a group of a fixed size, by their index."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client import Client, Consumer
from headrace.core.errors import GroupNotFound, GroupSizeConflict, InvalidInput
from tests.broker.background import eventually

ON_POSTGRES = True


def send(client: Client, numbers: range) -> None:
    with client.producer("orders") as producer:
        for number in numbers:
            producer.send(b"%d" % number, partition=number % 4)


def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        batch = consumer.poll(timeout=60.0)
        assert batch.num_rows, found
        found += [int(value) for value in batch.column("value").to_pylist()]
    return sorted(found)


def test_each_consumer_reads_its_partitions_and_continues_where_it_committed(client: Client) -> None:
    client.create_topic("orders", partitions=4)
    client.register_group("orders", "workers", consumers=2)
    send(client, range(40))
    for begin, end in ((0, 40), (40, 60)):
        if begin:
            send(client, range(begin, end))
        for index in (0, 1):
            with client.consumer("orders", group="workers", consumer_index=index) as consumer:
                assert consumer.assignment == [index, index + 2]
                mine = [number for number in range(begin, end) if number % 2 == index]
                assert read(consumer, len(mine)) == mine
                consumer.commit()
    assert client.committed("orders", "workers") == dict.fromkeys(range(4), 15)


def test_a_group_that_gets_another_size_moves_its_consumers(client: Client) -> None:
    client.create_topic("orders", partitions=4)
    client.register_group("orders", "workers", consumers=1)
    revoked: list[list[int]] = []
    with client.consumer("orders", group="workers", consumer_index=0, on_revoked=revoked.append) as consumer:
        send(client, range(8))
        assert read(consumer, 8) == list(range(8))
        client.register_group("orders", "workers", consumers=2)
        assert consumer.commit() == [1, 3], "they are another consumer's now"
        assert client.committed("orders", "workers").keys() == {0, 2}
        eventually(lambda: consumer.poll(timeout=0.0).num_rows == 0 and consumer.assignment == [0, 2])
        assert revoked == [[1, 3]]
        client.alter_topic("orders", partitions=6)
        eventually(lambda: consumer.poll(timeout=0.0).num_rows == 0 and consumer.assignment == [0, 2, 4])
    assert client.describe_group("orders", "workers").consumers == 2


def test_a_seek_wins_over_a_consumer_that_has_read_on(client: Client) -> None:
    client.create_topic("orders", partitions=4)
    client.register_group("orders", "workers", consumers=1)
    with client.consumer("orders", group="workers", consumer_index=0) as consumer:
        send(client, range(8))
        assert read(consumer, 8) == list(range(8))
        client.seek("orders", "workers", 1)
        assert consumer.commit() == [0, 1, 2, 3], "what was read before counts no more"
        assert client.committed("orders", "workers") == dict.fromkeys(range(4), 1)
        assert read(consumer, 4) == list(range(4, 8))


@pytest.mark.parametrize("index", [-1, True, "0", 1.5])
def test_a_faulty_index_is_refused(client: Client, index: Any) -> None:
    client.create_topic("orders")
    with pytest.raises(InvalidInput, match="consumer_index"):
        client.consumer("orders", group="workers", consumer_index=index)


def test_what_does_not_fit_is_refused(client: Client) -> None:
    client.create_topic("orders")
    with pytest.raises(GroupNotFound):
        client.consumer("orders", group="workers", consumer_index=0)
    client.register_group("orders", "free")
    with pytest.raises(GroupSizeConflict, match="no fixed size"):
        client.consumer("orders", group="free", consumer_index=0)
    client.register_group("orders", "workers", consumers=2)
    with pytest.raises(InvalidInput, match="0 to 1"):
        client.consumer("orders", group="workers", consumer_index=2)
    for more in ({}, {"group": "workers", "member_id": "m"}):
        with pytest.raises(InvalidInput, match="consumer_index"):
            client.consumer("orders", consumer_index=0, **more)  # type: ignore[call-overload]

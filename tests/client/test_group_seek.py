"""An operator moves a group while its members read: every member continues where the group was moved to."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from headrace.aio import AsyncClient
from headrace.broker import Broker
from headrace.client import Client, Consumer
from tests.broker.background import PATIENCE_SECONDS, eventually

ON_POSTGRES = True

TOPIC, GROUP = "orders", "billing"


def fill(client: Client, count: int, partitions: int = 1) -> None:
    client.create_topic(TOPIC, partitions=partitions)
    for partition in range(partitions):
        values = [b"%d-%d" % (partition, number) for number in range(count)]
        numbers = pa.array([partition] * count, pa.int32())
        with client.producer(TOPIC) as producer:
            producer.send_batch(pa.record_batch({"value": pa.array(values), "partition": numbers}))


def take(consumer: Consumer, count: int, max_messages: int = 100) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        batch = consumer.poll(min(max_messages, count - len(values)), timeout=PATIENCE_SECONDS)
        assert batch.num_rows, f"only {len(values)} of {count} came"
        values += batch.column("value").to_pylist()
    return values


def offset_of(value: bytes) -> int:
    return int(value.split(b"-")[1])


def test_commit_of_what_was_read_before_a_seek_does_not_undo_it(client: Client) -> None:
    fill(client, 10)
    with client.consumer(TOPIC, GROUP, session_timeout_seconds=600) as consumer:
        take(consumer, 6)
        client.seek(TOPIC, GROUP, {0: 2})
        assert consumer.commit() == [0], "the partition whose progress was not committed is reported"
        assert client.committed(TOPIC, GROUP) == {0: 2}
        assert take(consumer, 8) == [b"0-%d" % number for number in range(2, 10)]
        assert consumer.commit() == []
        assert client.committed(TOPIC, GROUP) == {0: 10}


def test_seek_back_drops_what_was_read_ahead(client: Client) -> None:
    fill(client, 10)
    with client.consumer(TOPIC, GROUP, session_timeout_seconds=600) as consumer:
        take(consumer, 4)
        consumer.commit()
        client.seek(TOPIC, GROUP, {0: 0})
        seen: list[bytes] = []

        def has_begun_again() -> bool:
            seen.extend(consumer.poll(1, timeout=0.1).column("value").to_pylist())
            return b"0-0" in seen

        eventually(has_begun_again)
        assert take(consumer, 9) == [b"0-%d" % number for number in range(1, 10)]


def test_seek_to_where_the_group_stands_gives_out_again_what_was_not_committed(client: Client) -> None:
    fill(client, 10)
    with client.consumer(TOPIC, GROUP, session_timeout_seconds=600) as consumer:
        take(consumer, 3)
        consumer.commit()
        take(consumer, 3)
        client.seek(TOPIC, GROUP, {0: 3})
        consumer.commit()
        assert take(consumer, 7) == [b"0-%d" % number for number in range(3, 10)]


def test_seek_forward_passes_over_what_lies_between(client: Client) -> None:
    fill(client, 10)
    with client.consumer(TOPIC, GROUP, session_timeout_seconds=600, auto_commit=True) as consumer:
        take(consumer, 2)
        client.seek(TOPIC, GROUP, {0: 8})
        values: list[bytes] = []

        def is_at_the_end() -> bool:
            values.extend(consumer.poll(1, timeout=0.1).column("value").to_pylist())
            return b"0-9" in values

        eventually(is_at_the_end)
        consumer.poll(1, timeout=0.01)
        assert client.committed(TOPIC, GROUP) == {0: 10}


def test_every_member_continues_at_the_new_position(client: Client) -> None:
    client.create_topic(TOPIC, partitions=2)
    with (
        client.consumer(TOPIC, GROUP, member_id="a", session_timeout_seconds=600) as first,
        client.consumer(TOPIC, GROUP, member_id="b", session_timeout_seconds=600) as second,
    ):
        members = (first, second)

        def are_sharing() -> bool:
            for member in members:
                member.poll(1, timeout=0.0)
            return sorted(len(member.assignment) for member in members) == [1, 1]

        eventually(are_sharing)
        fill(client, 20, partitions=2)
        for member in members:
            take(member, 1)
        client.seek(TOPIC, GROUP, {0: 12, 1: 12})
        assert sorted(first.commit() + second.commit()) == [0, 1]
        for member in members:
            assert [offset_of(value) for value in take(member, 8)] == list(range(12, 20))
            assert member.commit() == []
    assert client.committed(TOPIC, GROUP) == {0: 20, 1: 20}


def test_seek_while_a_member_has_lost_its_session_counts_when_it_is_back(client: Client, broker: Broker) -> None:
    fill(client, 10)
    with client.consumer(TOPIC, GROUP, member_id="me", session_timeout_seconds=600) as consumer:
        take(consumer, 6)
        broker.leave_group(TOPIC, GROUP, "me")
        client.seek(TOPIC, GROUP, {0: 1})
        assert consumer.commit() == [0]
        assert take(consumer, 9) == [b"0-%d" % number for number in range(1, 10)]


def test_group_that_is_deleted_starts_over_for_its_members(client: Client) -> None:
    fill(client, 10)
    with client.consumer(TOPIC, GROUP, member_id="me", session_timeout_seconds=600) as consumer:
        take(consumer, 3)
        client.seek(TOPIC, GROUP, {0: 4})
        consumer.commit()
        take(consumer, 2)
        client.delete_group(TOPIC, GROUP)
        client.register_group(TOPIC, GROUP)
        assert consumer.commit() == [0]
        assert take(consumer, 10) == [b"0-%d" % number for number in range(10)]


def test_loop_over_messages_continues_after_a_seek(client: Client) -> None:
    fill(client, 10)
    with client.consumer(TOPIC, GROUP, session_timeout_seconds=600) as consumer:
        seen: list[bytes] = []
        for message in consumer.messages(idle_seconds=PATIENCE_SECONDS):
            seen.append(message.value)
            if len(seen) == 5:
                client.seek(TOPIC, GROUP, {0: 0})
            consumer.commit()
            if len(seen) > 10 and seen[-1] == b"0-9":
                break
        assert seen[-10:] == [b"0-%d" % number for number in range(10)]
        assert client.committed(TOPIC, GROUP) == {0: 10}


def test_async_member_continues_at_the_new_position(client: Client) -> None:
    fill(client, 10)

    async def main() -> None:
        aio = AsyncClient(client)
        async with await aio.consumer(TOPIC, group=GROUP, session_timeout_seconds=600) as consumer:
            assert (await consumer.poll(6, timeout=PATIENCE_SECONDS)).num_rows == 6
            await aio.seek(TOPIC, GROUP, {0: 2})
            assert await consumer.commit() == [0]
            values: list[bytes] = []
            while len(values) < 8:
                values += (await consumer.poll(timeout=PATIENCE_SECONDS)).column("value").to_pylist()
            assert values == [b"0-%d" % number for number in range(2, 10)]
            assert await consumer.commit() == []
            assert await aio.committed(TOPIC, GROUP) == {0: 10}

    asyncio.run(main())


def test_async_poll_that_was_cancelled_does_not_undo_a_seek(client: Client) -> None:
    fill(client, 10)

    async def main() -> None:
        aio = AsyncClient(client)
        async with await aio.consumer(TOPIC, group=GROUP, session_timeout_seconds=600) as consumer:
            poll = asyncio.create_task(consumer.poll(6, timeout=PATIENCE_SECONDS))
            await asyncio.sleep(0)
            poll.cancel()
            await asyncio.wait([poll])
            await aio.seek(TOPIC, GROUP, {0: 2})
            # It may know of the seek by now, or not.
            values: list[bytes] = (await consumer.poll(6, timeout=PATIENCE_SECONDS)).column("value").to_pylist()
            await consumer.commit()
            while not values or values[-1] != b"0-9":
                values += (await consumer.poll(timeout=PATIENCE_SECONDS)).column("value").to_pylist()
                await consumer.commit()
            assert values[-8:] == [b"0-%d" % number for number in range(2, 10)]
            assert await aio.committed(TOPIC, GROUP) == {0: 10}

    asyncio.run(main())

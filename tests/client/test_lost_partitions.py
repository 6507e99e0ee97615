"""A member whose session ended drops what it holds, as `on_lost` tells it to: all that is not committed comes again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace import TopicPartition
from headrace.aio import AsyncClient
from headrace.broker import Broker
from headrace.client import Client, Consumer
from headrace.client.consumer.topics_consumer import TopicsConsumer
from headrace.core.errors import ServerFailed
from headrace.testing import EmbeddedTransport
from headrace.wire.operations import DescribeGroup, Operation
from tests.broker.background import PATIENCE_SECONDS, eventually

ON_POSTGRES = True

TOPIC, GROUP, MEMBER = "orders", "billing", "me"


def fill(client: Client, count: int, first: int = 0, topic: str = TOPIC) -> None:
    with client.producer(topic) as producer:
        for number in range(first, first + count):
            producer.send(b"%d" % number, partition=0)


def values_of(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


class Buffering:
    """A program that holds what it was given in memory, and drops it when the partitions are lost."""

    def __init__(self, client: Client, **settings: Any) -> None:
        self.held: list[bytes] = []
        self.dropped: list[bytes] = []
        self.assigned = 0
        self.in_on_lost: Callable[[], object] = lambda: None
        self.consumer: Consumer = client.consumer(
            TOPIC, GROUP, member_id=MEMBER, on_assigned=self.has_assigned, on_lost=self.has_lost, **settings
        )

    def has_assigned(self, partitions: list[int]) -> None:
        self.assigned += 1

    def has_lost(self, partitions: list[int]) -> None:
        self.in_on_lost()
        self.dropped += self.held
        self.held.clear()

    def hold(self, count: int, max_messages: int = 100) -> None:
        """Poll until so many messages are held."""
        while len(self.held) < count:
            batch = self.consumer.poll(min(max_messages, count - len(self.held)), timeout=PATIENCE_SECONDS)
            assert batch.num_rows, f"only {len(self.held)} of {count} came"
            self.held += batch.column("value").to_pylist()

    def join_again(self) -> None:
        """Notice that the session ended."""
        before = self.assigned

        def has_noticed() -> bool:
            self.held += self.consumer.poll(timeout=0.01).column("value").to_pylist()
            return self.assigned > before

        eventually(has_noticed)


def end_session(broker: Broker) -> None:
    """As if nothing had been heard of the member for its session timeout."""
    broker.leave_group(TOPIC, GROUP, MEMBER)


def until_joined_again(consumer: Consumer) -> None:
    """Wait until the thread of the heartbeats has joined again, which the program does not know yet."""
    session = consumer._session
    assert session is not None
    eventually(lambda: session.is_rejoined(session._present))


def test_what_was_not_committed_is_given_again_after_a_session_timeout(client: Client) -> None:
    client.create_topic(TOPIC)
    fill(client, 100)
    program = Buffering(client, session_timeout_seconds=0.5)
    with program.consumer as consumer:
        program.hold(5)
        assert consumer.commit() == []
        program.hold(60)
        session = consumer._session
        assert session is not None
        # While this is held no heartbeat is sent, as if the process stood still.
        with session._lock:
            eventually(lambda: client.describe_group(TOPIC, GROUP).members == {})
        program.join_again()
        assert program.dropped[:60] == values_of(0, 60)
        fill(client, 10, first=100)
        program.hold(105)
        assert program.held == values_of(5, 110), "what it dropped and what it had read ahead, once each and in order"
        assert consumer.commit() == []
    assert client.committed(TOPIC, GROUP) == {0: 110}


def test_nothing_is_committed_in_on_lost(client: Client, broker: Broker) -> None:
    client.create_topic(TOPIC)
    fill(client, 20)
    program = Buffering(client)
    refused: list[list[int]] = []
    with program.consumer as consumer:
        program.hold(10)

        def commit() -> None:
            refused.extend([consumer.commit(), consumer.commit(), consumer.commit({0: 7})])

        program.in_on_lost = commit
        end_session(broker)
        until_joined_again(consumer)
        program.join_again()
        assert refused == [[0], [0], [0]]
        assert client.committed(TOPIC, GROUP) == {}
        program.hold(20)
        assert program.held == values_of(0, 20)
        assert consumer.commit() == []
    assert client.committed(TOPIC, GROUP) == {0: 20}


def test_what_was_processed_may_be_committed_before_the_loss_is_noticed(client: Client, broker: Broker) -> None:
    client.create_topic(TOPIC)
    fill(client, 20)
    program = Buffering(client)
    with program.consumer as consumer:
        program.hold(10)
        end_session(broker)
        until_joined_again(consumer)
        assert consumer.commit() == [], "nobody else had it, and nothing was dropped"
        program.held.clear()
        program.join_again()
        program.hold(10)
        assert (program.dropped, program.held) == ([], values_of(10, 20))


def test_where_another_member_committed_meanwhile_counts(client: Client, broker: Broker) -> None:
    client.create_topic(TOPIC)
    fill(client, 20)
    program = Buffering(client)
    with program.consumer as consumer:
        program.hold(10)
        session = consumer._session
        assert session is not None
        with session._lock:
            end_session(broker)
            with client.consumer(TOPIC, GROUP) as other:
                assert other.poll(14, timeout=PATIENCE_SECONDS).num_rows == 14
                assert other.commit() == []
        program.join_again()
        program.hold(6)
        assert program.held == values_of(14, 20)


def test_a_seek_before_the_loss_is_noticed_does_not_count(client: Client, broker: Broker) -> None:
    client.create_topic(TOPIC)
    fill(client, 20)
    program = Buffering(client)
    with program.consumer as consumer:
        program.hold(4)
        consumer.commit()
        program.held.clear()
        end_session(broker)
        until_joined_again(consumer)
        consumer.seek({0: 16})
        program.in_on_lost = lambda: consumer.seek({0: 17})
        program.join_again()
        program.hold(16)
        assert program.held == values_of(4, 20)


def test_on_assigned_may_seek_where_the_program_stands(client: Client, broker: Broker) -> None:
    client.create_topic(TOPIC)
    fill(client, 20)
    stands = 12
    consumers: list[Consumer] = []

    def assigned(partitions: list[int]) -> None:
        for consumer in consumers:
            consumer.seek(dict.fromkeys(partitions, stands))

    with client.consumer(TOPIC, GROUP, member_id=MEMBER, on_assigned=assigned) as consumer:
        consumers.append(consumer)
        assert consumer.poll(3, timeout=PATIENCE_SECONDS).num_rows == 3
        end_session(broker)
        until_joined_again(consumer)
        assert consumer.poll(timeout=PATIENCE_SECONDS).column("value").to_pylist() == values_of(12, 20)


def test_the_last_messages_stay_the_same_until_they_are_committed(client: Client, broker: Broker) -> None:
    client.create_topic(TOPIC)
    fill(client, 20)
    program = Buffering(client, start=-5)
    with program.consumer:
        program.hold(5)
        fill(client, 20, first=20)
        end_session(broker)
        until_joined_again(program.consumer)
        program.join_again()
        program.hold(25)
        assert program.held == values_of(15, 40), "not the last five of now"


def test_a_partition_that_was_revoked_comes_back_at_its_committed_offset(client: Client) -> None:
    client.create_topic(TOPIC, partitions=2)
    with client.producer(TOPIC) as producer:
        for number in range(20):
            producer.send(b"%d" % number, partition=1)
    committed: list[list[int]] = []
    first: Consumer
    with client.consumer(TOPIC, GROUP, on_revoked=lambda _: committed.append(first.commit({1: 7}))) as first:
        assert first.poll(10, timeout=PATIENCE_SECONDS).num_rows == 10
        with client.consumer(TOPIC, GROUP) as second:
            eventually(lambda: not first.poll(1, timeout=0.0).num_rows and second.poll(1, timeout=0.0).num_rows == 1)
        assert committed == [[]], "it was still its own"
        again: list[bytes] = []

        def has_all() -> bool:
            again.extend(first.poll(timeout=0.01).column("value").to_pylist())
            return len(again) == 13

        eventually(has_all)
        assert again == values_of(7, 20)


def test_members_of_several_topics_get_again_what_they_lost(client: Client, broker: Broker) -> None:
    client.create_topic(TOPIC)
    client.create_topic("returns")
    fill(client, 10)
    fill(client, 10, topic="returns")
    held: list[tuple[str, bytes]] = []
    refused: list[list[TopicPartition]] = []

    def lost(partitions: list[TopicPartition]) -> None:
        topics = {partition.topic for partition in partitions}
        refused.append(consumer.commit())
        held[:] = [message for message in held if message[0] not in topics]

    consumer: TopicsConsumer
    with client.consumer([TOPIC, "returns"], GROUP, member_id=MEMBER, on_lost=lost) as consumer:

        def has_all() -> bool:
            batch = consumer.poll(timeout=0.01)
            held.extend(zip(batch.column("topic").to_pylist(), batch.column("value").to_pylist(), strict=True))
            return len(held) == 20

        eventually(has_all)
        end_session(broker)
        until_joined_again(consumer._consumers[TOPIC])
        assert len(held) == 20

        def has_dropped() -> bool:
            has_all()
            return bool(refused)

        eventually(has_dropped)
        assert refused == [[TopicPartition(TOPIC, 0)]]
        assert client.committed(TOPIC, GROUP) == {}
        assert client.committed("returns", GROUP) == {0: 10}, "its session did not end"
        eventually(lambda: len(held) == 20 or has_all())
        assert [value for topic, value in held if topic == TOPIC] == values_of(0, 10)


def test_async_member_gets_again_what_it_lost(client: Client, broker: Broker) -> None:
    client.create_topic(TOPIC)
    fill(client, 20)

    async def main() -> list[bytes]:
        held: list[bytes] = []
        aio = AsyncClient(client)
        async with await aio.consumer(TOPIC, group=GROUP, member_id=MEMBER, on_lost=lambda _: held.clear()) as consumer:
            while len(held) < 10:
                held += (await consumer.poll(10 - len(held), timeout=PATIENCE_SECONDS)).column("value").to_pylist()
            end_session(broker)
            wrapped = consumer._wrapped
            assert isinstance(wrapped, Consumer)
            await asyncio.to_thread(until_joined_again, wrapped)
            while len(held) < 20:
                held += (await consumer.poll(timeout=PATIENCE_SECONDS)).column("value").to_pylist()
            assert await consumer.commit() == []
        return held

    assert asyncio.run(main()) == values_of(0, 20)


class FailsOnce(EmbeddedTransport):
    """Fails the next look at a group."""

    is_failing = False

    def call(self, operation: Operation[Any]) -> Any:
        if self.is_failing and isinstance(operation, DescribeGroup):
            self.is_failing = False
            raise ServerFailed("once")
        return super().call(operation)


def test_what_was_dropped_is_not_committed_by_a_later_call(broker: Broker) -> None:
    """The poll that reports the loss fails, so the consumer still stands behind what the program has dropped."""
    transport = FailsOnce(broker)
    with Client(transport) as client:
        client.create_topic(TOPIC)
        fill(client, 20)
        # Where it begins is not the group's to say, so it asks.
        program = Buffering(client, start=-20)
        with program.consumer as consumer:
            program.hold(10)
            transport.is_failing = True
            end_session(broker)
            until_joined_again(consumer)
            with pytest.raises(ServerFailed):
                consumer.poll(timeout=PATIENCE_SECONDS)
            assert program.dropped == values_of(0, 10)
            assert consumer.commit() == [0]
            assert client.committed(TOPIC, GROUP) == {}
            program.hold(20)
            assert program.held == values_of(0, 20)


def test_what_was_refused_once_is_not_committed_before_it_is_given_again(client: Client, broker: Broker) -> None:
    """A program may have undone its work when it was told that its commit was refused."""
    client.create_topic(TOPIC)
    fill(client, 20)
    program = Buffering(client)
    with program.consumer as consumer:
        program.hold(10)
        session = consumer._session
        assert session is not None
        # Or else it might be back before the other one comes.
        with session._lock:
            end_session(broker)
            other = client.consumer(TOPIC, GROUP, member_id="other")
        with other:
            assert consumer.commit() == [0]
        eventually(lambda: session.renew().partitions == [0])
        assert consumer.commit() == [0], "it is its own again, and what it read before is void"
        program.held.clear()
        program.hold(20)
        assert program.held == values_of(0, 20)

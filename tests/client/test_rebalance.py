"""Rebalances as a member sees them: callbacks in time, nothing twice, and what happens when one fails half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.aio import AsyncClient
from headrace.aio.consumer import AsyncConsumer
from headrace.broker import Broker
from headrace.client import Client, Consumer
from headrace.client.consumer import session
from headrace.core.errors import ServerFailed
from headrace.core.limits import SESSION_TIMEOUT_SECONDS_MAX
from headrace.testing import EmbeddedTransport
from headrace.wire.operations import DescribeGroup, Heartbeat, Operation
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.client.test_heartbeat import Watched

ON_POSTGRES = True


class FailsOnce(EmbeddedTransport):
    """Fails the next look at a group."""

    is_failing = False

    def call(self, operation: Operation[Any]) -> Any:
        if self.is_failing and isinstance(operation, DescribeGroup):
            self.is_failing = False
            raise ServerFailed("once")
        return super().call(operation)


def test_partitions_that_could_not_be_taken_up_are_taken_up_by_the_next_poll(broker: Broker) -> None:
    transport = FailsOnce(broker)
    with Client(transport) as client:
        client.create_topic("orders", partitions=2)
        # Where it begins is not the group's to say, so it asks.
        with client.consumer("orders", group="billing", start=-10) as stays:
            with client.consumer("orders", group="billing"):
                eventually(lambda: stays.poll(timeout=0.0).num_rows == 0 and len(stays.assignment) == 1)
            transport.is_failing = True

            def has_failed() -> bool:
                try:
                    stays.poll(timeout=0.0)
                except ServerFailed:
                    return True
                return False

            eventually(has_failed)
            assert len(stays.assignment) == 1
            eventually(lambda: stays.poll(timeout=0.0).num_rows == 0 and stays.assignment == [0, 1])
            with client.producer("orders") as producer:
                for partition in (0, 1):
                    producer.send(b"%d" % partition, partition=partition).result()
            seen: list[bytes] = []

            def has_both() -> bool:
                seen.extend(stays.poll(timeout=0.1).column("value").to_pylist())
                return len(seen) == 2

            eventually(has_both)
            assert sorted(seen) == [b"0", b"1"]


def fill(client: Client, count: int, first: int = 0) -> None:
    with client.producer("orders") as producer:
        for number in range(first, first + count):
            producer.send(b"%d" % number, partition=number % 2)


def poll_until(members: list[Consumer], is_done: Callable[[], bool]) -> list[bytes]:
    """Let members poll in turns until something is so; what they were given."""
    values: list[bytes] = []

    def looked() -> bool:
        for member in members:
            values.extend(member.poll(timeout=0.01).column("value").to_pylist())
        return is_done()

    eventually(looked)
    return values


def test_the_next_owner_takes_one_call_from_the_release_to_the_committed_offset(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second round trip is that of reading."""
    for name in ("_BEAT_SECONDS_MAX", "_JOINING_BEAT_SECONDS"):
        monkeypatch.setattr(session, name, 3600.0)
    first, second = Watched(broker), Watched(broker)
    with Client(first) as ann, Client(second) as bob:
        ann.create_topic("orders", partitions=2)
        fill(ann, 6)
        seconds = SESSION_TIMEOUT_SECONDS_MAX
        with ann.consumer("orders", group="g", member_id="ann", session_timeout_seconds=seconds) as owner:
            poll_until([owner], lambda: owner.positions() == {0: 3, 1: 3})
            owner.commit()
            with bob.consumer("orders", group="g", member_id="bob", session_timeout_seconds=seconds) as next_owner:
                assert next_owner.assignment == []
                owner.poll(timeout=0.0)
                assert owner._session is not None and next_owner._session is not None
                owner._session.beat()
                owner.poll(timeout=0.0)
                # What it gave up it says at once, in the thread of the heartbeats.
                eventually(lambda: broker.describe_group("orders", "g").progress[1].consumer == "bob")
                before = dict(second.counts)
                next_owner._session.beat()
                next_owner.poll(timeout=0.0)
                assert (next_owner.assignment, next_owner.positions()) == ([1], {1: 3})
                made = {kind: count - before.get(kind, 0) for kind, count in second.counts.items()}
                assert {kind: count for kind, count in made.items() if count} == {Heartbeat: 1}
    assert DescribeGroup not in first.counts and DescribeGroup not in second.counts, "joining needs no call more either"


def test_what_is_committed_when_partitions_are_revoked_comes_only_once(client: Client) -> None:
    client.create_topic("orders", partitions=2)
    fill(client, 20)
    revoked: list[tuple[list[int], list[int]]] = []
    first: Consumer
    with client.consumer(
        "orders", "billing", on_revoked=lambda partitions: revoked.append((partitions, first.commit()))
    ) as first:
        values: list[bytes] = []
        values += poll_until([first], lambda: sum(first.positions().values()) == 20)
        assert client.committed("orders", "billing") == {}
        with client.consumer("orders", "billing") as second:
            values += poll_until([first, second], lambda: len(second.assignment) == 1)
            assert revoked == [([1], [])], "it was still its own"
            assert client.committed("orders", "billing") == {0: 10, 1: 10}
            fill(client, 20, first=20)
            values += poll_until([first, second], lambda: sum(second.positions().values()) == 20)
            values += poll_until([first, second], lambda: sum(first.positions().values()) == 20)
    assert sorted(values) == sorted(b"%d" % number for number in range(40))


def test_partitions_that_are_kept_are_read_on_from_where_they_are(client: Client) -> None:
    client.create_topic("orders", partitions=2)
    fill(client, 20)
    with client.consumer("orders", "billing") as first:
        before = poll_until([first], lambda: sum(first.positions().values()) == 20)
        with client.consumer("orders", "billing") as second:
            poll_until([first, second], lambda: len(second.assignment) == 1)
            fill(client, 2, first=20)
            after = poll_until([first], lambda: first.positions() == {0: 11})
            assert after == [b"20"], "not committed, and not read twice"
            assert first.commit() == []
            assert len(before) == 20


def test_a_loop_over_messages_gives_up_partitions_between_two_of_them(client: Client) -> None:
    client.create_topic("orders", partitions=2)
    fill(client, 2_000)
    first: Consumer
    with client.consumer("orders", "billing", on_revoked=lambda _: first.commit()) as first:
        given = [next(iter(first.messages(idle_seconds=PATIENCE_SECONDS)))]
        with client.consumer("orders", "billing", auto_commit=True) as second:
            values: list[bytes] = []
            while any(position < 1_000 for position in first.positions().values()):
                for message in first.messages(idle_seconds=0.5):
                    given.append(message)
                    values += second.poll(timeout=0.0).column("value").to_pylist()
            values += poll_until([first, second], lambda: sum(second.positions().values()) == 1_000)
            assert first.commit() == []
    values += [message.value for message in given]
    assert sorted(values) == sorted(b"%d" % number for number in range(2_000))


def test_partitions_that_were_lost_are_distinguished(client: Client, broker: Broker) -> None:
    client.create_topic("orders", partitions=2)
    fill(client, 10)
    events: list[tuple[str, list[int]]] = []
    with client.consumer(
        "orders",
        "billing",
        member_id="me",
        on_assigned=lambda partitions: events.append(("assigned", partitions)),
        on_revoked=lambda partitions: events.append(("revoked", partitions)),
        on_lost=lambda partitions: events.append(("lost", partitions)),
    ) as consumer:
        poll_until([consumer], lambda: sum(consumer.positions().values()) == 10)
        assert consumer.commit() == []
        # As if its session had run out.
        broker.leave_group("orders", "billing", "me")
        assert poll_until([consumer], lambda: len(events) == 3) == []
        fill(client, 2, first=10)
        values = poll_until([consumer], lambda: sum(consumer.positions().values()) == 12)
        assert events == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0, 1])]
        assert sorted(values) == [b"10", b"11"], "it continues at what it committed"
        assert consumer.commit() == []
    assert client.committed("orders", "billing") == {0: 6, 1: 6}


def test_a_member_that_does_not_poll_leaves_until_it_does(client: Client) -> None:
    client.create_topic("orders", partitions=2)
    fill(client, 10)
    with client.consumer("orders", "billing", max_poll_seconds=3) as consumer:
        poll_until([consumer], lambda: sum(consumer.positions().values()) == 10)
        eventually(lambda: client.describe_group("orders", "billing").members == {})
        assert consumer.commit() == [], "it joined again, and nobody else had them"
        assert client.committed("orders", "billing") == {0: 5, 1: 5}
        eventually(lambda: client.describe_group("orders", "billing").members == {})
        fill(client, 2, first=10)
        assert sorted(poll_until([consumer], lambda: sum(consumer.positions().values()) == 12)) == [b"10", b"11"]


def test_async_members_hand_over_what_they_committed(client: Client) -> None:
    client.create_topic("orders", partitions=2)
    fill(client, 20)

    async def main() -> list[bytes]:
        aio = AsyncClient(client)
        values: list[bytes] = []

        async def read(member: AsyncConsumer) -> None:
            values.extend((await member.poll(timeout=0.05)).column("value").to_pylist())
            assert await member.commit() == []

        async with await aio.consumer("orders", group="billing") as first:
            await read(first)
            async with await aio.consumer("orders", group="billing") as second:
                while not second.assignment or len(values) < 20:
                    await read(first)
                    await read(second)
        return values

    assert sorted(asyncio.run(main())) == sorted(b"%d" % number for number in range(20))

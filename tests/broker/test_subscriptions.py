"""Subscriptions: messages pushed through a bounded buffer, one consumer never at the cost of another."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headrace.broker import Broker, Subscription
from headrace.core.errors import (
    Closed,
    GroupNotFound,
    GroupSizeConflict,
    MemberNotFound,
    OffsetOutOfRange,
    TopicDeleted,
)
from tests.broker.background import Background, eventually, together, until_waiting
from tests.broker.clock import SettableClock
from tests.broker.messages import batch, values_of
from tests.broker.sites import Site

WAIT = 60.0


def take(subscription: Subscription, count: int, **limits: Any) -> list[tuple[int, bytes]]:
    """The next messages with their partitions; there must be so many."""
    taken: list[tuple[int, bytes]] = []
    while len(taken) < count:
        read = subscription.get(timeout_seconds=WAIT, **limits)
        assert read is not None
        taken += zip(read.column("partition").to_pylist(), values_of(read), strict=True)
    return taken


def until_buffered(subscription: Subscription, messages: int) -> None:
    eventually(lambda: subscription.buffered == messages)


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of two partitions with five messages in each."""
    broker.create_topic("orders", partitions=2)
    for number in range(5):
        broker.publish("orders", batch(b"a%d" % number, b"b%d" % number, partition=[0, 1]))
    return "orders"


def test_a_fixed_consumer_gets_its_partitions_in_order(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers", consumers=2)
    with broker.subscribe(topic, "readers", 0) as first, broker.subscribe(topic, "readers", 1) as second:
        assert take(first, 5) == [(0, b"a%d" % number) for number in range(5)]
        assert take(second, 5) == [(1, b"b%d" % number) for number in range(5)]
        assert first.get() is None
        broker.publish(topic, batch(b"later", partition=1))
        assert take(second, 1) == [(1, b"later")]
        assert (first.partitions, second.partitions) == ([0], [1])


def test_a_member_joins_by_subscribing_and_leaves_by_closing(broker: Broker, topic: str) -> None:
    with broker.subscribe(topic, "readers", "ann") as subscription:
        assert broker.describe_group(topic, "readers").members == {"ann": [0, 1]}
        assert len(take(subscription, 10)) == 10
    assert broker.describe_group(topic, "readers").members == {}
    subscription.close()
    with pytest.raises(Closed, match="the subscription is closed"):
        subscription.get()


def test_delivery_continues_where_the_group_committed(broker: Broker, topic: str) -> None:
    with broker.subscribe(topic, "readers", "ann") as subscription:
        taken = take(subscription, 4, messages_max=1)
        subscription.commit()
    committed = broker.committed(topic, "readers")
    assert sum(committed.values()) == 4
    with broker.subscribe(topic, "readers", "bob") as subscription:
        rest = take(subscription, 6)
    assert sorted(taken + rest) == sorted([(0, b"a%d" % n) for n in range(5)] + [(1, b"b%d" % n) for n in range(5)])


def test_what_was_not_committed_is_delivered_again(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers", consumers=1)
    with broker.subscribe(topic, "readers", 0) as subscription:
        subscription.commit()
        first = take(subscription, 10)
    with broker.subscribe(topic, "readers", 0) as subscription:
        assert sorted(take(subscription, 10)) == sorted(first)
    assert broker.committed(topic, "readers") == {}


def test_a_get_has_at_most_messages_max(broker: Broker, topic: str) -> None:
    with broker.subscribe(topic, "readers", "ann") as subscription:
        until_buffered(subscription, 10)
        sizes = []
        for _ in range(4):
            read = subscription.get(messages_max=3)
            assert read is not None
            sizes.append(read.num_rows)
        assert sizes == [3, 2, 3, 2]


def test_waiting_in_vain_gives_nothing(broker: Broker) -> None:
    broker.create_topic("orders")
    with broker.subscribe("orders", "readers", "ann") as subscription:
        assert subscription.get() is None
        assert subscription.get(timeout_seconds=0.01) is None


def test_a_consumer_that_waits_is_woken(broker: Broker) -> None:
    broker.create_topic("orders")
    with broker.subscribe("orders", "readers", "ann") as subscription:
        waiting = Background(lambda: take(subscription, 1))
        broker.publish("orders", batch(b"a"))
        assert waiting.result() == [(0, b"a")]


# The buffer is bounded


def test_a_stuck_consumer_stops_only_itself(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.register_group("orders", "stuck", consumers=1)
    broker.register_group("orders", "lively", consumers=1)
    with (
        broker.subscribe("orders", "stuck", 0, buffer_messages=3) as stuck,
        broker.subscribe("orders", "lively", 0, buffer_messages=3) as lively,
    ):
        for number in range(50):
            broker.publish("orders", batch(b"%d" % number))
            assert take(lively, 1) == [(0, b"%d" % number)]
        until_buffered(stuck, 3)
        # It goes on from the log where it stopped.
        assert take(stuck, 50) == [(0, b"%d" % number) for number in range(50)]


def test_the_buffer_is_never_fuller_than_it_may_be(broker: Broker) -> None:
    broker.create_topic("orders", partitions=4)
    with broker.subscribe("orders", "readers", "ann", buffer_messages=5) as subscription:
        most = 0
        for number in range(40):
            broker.publish("orders", batch(*[b"%d" % number] * 3))
            most = max(most, subscription.buffered)
        until_buffered(subscription, 5)
        most = max(most, subscription.buffered)
        taken = 0
        while taken < 120:
            taken += len(take(subscription, 1, messages_max=2))
            most = max(most, subscription.buffered)
        assert most == 5


def test_no_partition_starves_behind_a_long_one(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)
    broker.publish("orders", batch(*[b"long"] * 100, partition=0))
    broker.publish("orders", batch(b"one", b"two", partition=[1, 2]))
    with broker.subscribe("orders", "readers", "ann", buffer_messages=4) as subscription:
        taken = take(subscription, 20, messages_max=1)
        assert {(1, b"one"), (2, b"two")} <= set(taken)


# Groups that change


def test_a_rebalance_moves_partitions(broker: Broker, topic: str) -> None:
    with broker.subscribe(topic, "readers", "ann") as ann:
        take(ann, 10)
        ann.commit()
        with broker.subscribe(topic, "readers", "bob") as bob:
            eventually(lambda: ann.get() is None and (ann.partitions, bob.partitions) == ([0], [1]))
            broker.publish(topic, batch(b"x", b"y", partition=[0, 1]))
            assert take(ann, 1) == [(0, b"x")]
            assert take(bob, 1) == [(1, b"y")]
            bob.commit()
        eventually(lambda: ann.partitions == [0, 1])
        broker.publish(topic, batch(b"z", partition=1))
        # Its own last message does not come again, though it is not committed: the partition was kept.
        assert take(ann, 1) == [(1, b"z")]
        assert ann.commit() == []


def test_what_was_read_is_committed_before_the_partition_is_let_go(broker: Broker, topic: str) -> None:
    with broker.subscribe(topic, "readers", "ann") as ann:
        take(ann, 10)
        with broker.subscribe(topic, "readers", "bob") as bob:
            eventually(lambda: ann.partitions == [0])
            assert bob.get() is None, "ann has not let it go"
            assert ann.commit() == []
            assert ann.get() is None
            eventually(lambda: bob.partitions == [1])
            broker.publish(topic, batch(b"y", partition=1))
            assert take(bob, 1) == [(1, b"y")], "nothing twice"
        assert broker.committed(topic, "readers") == {0: 5, 1: 5}


def test_what_was_not_committed_when_it_was_let_go_is_not_committed_later(broker: Broker, topic: str) -> None:
    with broker.subscribe(topic, "readers", "ann") as ann:
        take(ann, 10)
        broker.join_group(topic, "readers", "bob")
        eventually(lambda: ann.get() is None and ann.partitions == [0])
        assert ann.commit() == []
        assert broker.committed(topic, "readers") == {0: 5}


def test_partitions_that_are_added_are_delivered(broker: Broker, topic: str) -> None:
    with broker.subscribe(topic, "readers", "ann") as ann:
        broker.alter_topic(topic, partitions=3)
        eventually(lambda: ann.partitions == [0, 1, 2])


def test_a_fixed_group_that_is_resized_moves_partitions(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "readers", consumers=1)
    with broker.subscribe(topic, "readers", 0) as first:
        take(first, 10)
        first.commit()
        broker.register_group(topic, "readers", consumers=2)
        with broker.subscribe(topic, "readers", 1) as second:
            eventually(lambda: (first.partitions, second.partitions) == ([0], [1]))
            broker.publish(topic, batch(b"x", partition=1))
            assert take(second, 1) == [(1, b"x")]
            broker.register_group(topic, "readers", consumers=1)
            with pytest.raises(MemberNotFound):
                take(second, 1)


def test_seeking_takes_subscribers_along(broker: Broker, topic: str) -> None:
    with broker.subscribe(topic, "readers", "ann") as subscription:
        take(subscription, 10)
        subscription.commit()
        broker.seek(topic, "readers", {0: 3})
        assert take(subscription, 2) == [(0, b"a3"), (0, b"a4")]


def test_a_silent_consumer_is_removed_and_gets_an_error(broker: Broker, topic: str, clock: SettableClock) -> None:
    subscription = broker.subscribe(topic, "readers", "ann", session_timeout_seconds=10)
    take(subscription, 1, messages_max=1)
    clock.step(10)
    broker.maintenance.run_all()
    assert broker.describe_group(topic, "readers").members == {}
    with pytest.raises(MemberNotFound, match="join again"):
        take(subscription, 100)
    assert subscription.commit() == [0]
    with pytest.raises(MemberNotFound):
        subscription.heartbeat()
    subscription.close()
    with broker.subscribe(topic, "readers", "ann") as again:
        assert len(take(again, 10)) == 10


def test_a_consumer_notices_by_itself_that_its_session_ran_out(
    broker: Broker, topic: str, clock: SettableClock
) -> None:
    with broker.subscribe(topic, "readers", "ann", session_timeout_seconds=10) as subscription:
        clock.step(10)
        with pytest.raises(MemberNotFound):
            subscription.get()


def test_reading_and_heartbeats_keep_a_consumer_in(broker: Broker, topic: str, clock: SettableClock) -> None:
    with broker.subscribe(topic, "readers", "ann", session_timeout_seconds=10) as subscription:
        for _ in range(3):
            clock.step(6)
            take(subscription, 1, messages_max=1)
            broker.maintenance.run_all()
        for _ in range(3):
            clock.step(9)
            subscription.heartbeat()
            broker.maintenance.run_all()
        assert broker.describe_group(topic, "readers").members == {"ann": [0, 1]}


def test_a_consumer_that_waits_for_messages_stays_a_member(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders")
    with broker.subscribe("orders", "readers", "ann", session_timeout_seconds=0.3) as subscription:
        waiting = Background(lambda: take(subscription, 1))
        groups = broker.topics.find("orders").groups
        for _ in range(5):
            clock.step(0.2)
            eventually(lambda: groups.sessions.until_us("readers", "ann") == clock.now_us() + 300_000)
            broker.maintenance.run_all()
        broker.publish("orders", batch(b"a"))
        assert waiting.result() == [(0, b"a")]


def test_a_session_is_renewed_again_after_an_answer_that_was_slow(
    broker: Broker, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("orders")
    groups = broker.topics.find("orders").groups

    def late(ask: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*given: Any, **named: Any) -> Any:
            answered = ask(*given, **named)
            clock.step(0.2)
            return answered

        return answer

    def is_fresh() -> bool:
        return groups.sessions.until_us("readers", "ann") == clock.now_us() + 300_000

    with monkeypatch.context() as slow:
        slow.setattr(groups, "join", late(groups.join))
        subscription = broker.subscribe("orders", "readers", "ann", session_timeout_seconds=0.3)
    with subscription:
        assert subscription.get() is None and is_fresh()
        with monkeypatch.context() as slow:
            slow.setattr(groups, "heartbeat", late(groups.heartbeat))
            clock.step(0.1)
            assert subscription.get() is None and not is_fresh()
        assert subscription.get() is None and is_fresh()


def test_a_fixed_consumer_needs_no_heartbeat(broker: Broker, topic: str, clock: SettableClock) -> None:
    broker.register_group(topic, "readers", consumers=1)
    with broker.subscribe(topic, "readers", 0) as subscription:
        clock.step(1_000_000)
        broker.maintenance.run_all()
        subscription.heartbeat()
        assert len(take(subscription, 10)) == 10


# Ends


def test_a_deleted_topic_ends_every_subscription(broker: Broker, topic: str) -> None:
    """One waits, one has a full buffer, one has no partition at all."""
    waits = broker.subscribe(topic, "waits", "ann")
    take(waits, 10)
    waiting = Background(lambda: take(waits, 1))
    full = broker.subscribe(topic, "full", "ann", buffer_messages=1)
    until_buffered(full, 1)
    idle = [broker.subscribe(topic, "many", f"member-{number}") for number in range(3)]
    eventually(lambda: idle[2]._generation is not None)
    assert idle[2].partitions == []
    idling = Background(lambda: idle[2].get(timeout_seconds=WAIT))
    until_waiting(broker, topic, readers=5)
    broker.delete_topic(topic)
    for ended in (waiting, idling):
        with pytest.raises(TopicDeleted):
            ended.result()
    with pytest.raises(TopicDeleted):
        take(full, 2)
    for subscription in (waits, full, *idle):
        subscription.close()


def test_a_topic_deleted_while_a_group_is_looked_up_is_the_reason_that_is_given(
    shared_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = shared_site.open()
    broker.create_topic("orders")
    broker.register_group("orders", "readers")
    groups, catalog = broker.topics.find("orders").groups, broker.store.catalog

    def overtaken(*given: Any) -> Any:
        monkeypatch.undo()
        broker.delete_topic("orders")
        return catalog.group(*given)

    monkeypatch.setattr(catalog, "group", overtaken)
    with pytest.raises(TopicDeleted):
        groups.get("readers")


def test_a_deleted_group_ends_its_subscriptions(broker: Broker, topic: str) -> None:
    subscription = broker.subscribe(topic, "readers", "ann")
    take(subscription, 10)
    waiting = Background(lambda: take(subscription, 1))
    broker.delete_group(topic, "readers")
    with pytest.raises(GroupNotFound):
        waiting.result()
    subscription.close()
    assert broker.list_groups(topic) == []


def test_a_closed_broker_ends_its_subscriptions(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders")
    broker.publish("orders", batch(b"a"))
    waits, full = (broker.subscribe("orders", group, "ann", buffer_messages=1) for group in ("waits", "full"))
    take(waits, 1)
    until_buffered(full, 1)
    waiting = Background(lambda: take(waits, 1))
    broker.close()
    for use in (waiting.result, partial(take, full, 2), partial(waits.get, None, WAIT)):
        with pytest.raises(Closed, match="the broker is closed"):
            use()
    waits.close()
    with pytest.raises(Closed, match="the subscription is closed"):
        waits.get()
    full.close()


def test_closing_ends_a_consumer_that_waits(broker: Broker) -> None:
    broker.create_topic("orders")
    subscription = broker.subscribe("orders", "readers", "ann")
    waiting = Background(lambda: subscription.get(timeout_seconds=WAIT))
    subscription.close()
    with pytest.raises(Closed):
        waiting.result()
    until_waiting(broker, "orders", readers=0)


def test_a_consumer_that_retention_has_overtaken_gets_the_valid_range(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", retention_seconds=10)
    with broker.subscribe("orders", "readers", "ann", buffer_messages=1, session_timeout_seconds=1000) as subscription:
        for number in range(12):
            broker.publish("orders", batch(b"%d" % number))
        until_buffered(subscription, 1)
        clock.step(20)
        broker.maintenance.run_all()
        start, end = broker.offsets("orders")[0]
        assert start > 1
        # What was in the buffer is still its own.
        assert take(subscription, 1) == [(0, b"0")]
        with pytest.raises(OffsetOutOfRange) as caught:
            take(subscription, 12)
        assert (caught.value.start, caught.value.end) == (start, end)
    with broker.subscribe("orders", "readers", "ann") as again:
        broker.publish("orders", batch(b"new"))
        assert take(again, 1) == [(0, b"new")]


def test_a_member_does_not_subscribe_to_a_fixed_group_nor_an_index_to_an_open_one(broker: Broker, topic: str) -> None:
    broker.register_group(topic, "fixed", consumers=2)
    broker.register_group(topic, "open")
    with pytest.raises(GroupSizeConflict):
        broker.subscribe(topic, "fixed", "ann")
    with pytest.raises(MemberNotFound):
        broker.subscribe(topic, "open", 0)
    with pytest.raises(MemberNotFound):
        broker.subscribe(topic, "fixed", 2)
    until_waiting(broker, topic, readers=0)


def test_a_delivery_that_fails_does_not_stop_the_others(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, fine = broker.subscribe(topic, "broken", "ann"), broker.subscribe(topic, "fine", "ann")
    take(fine, 10)

    def fail() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(broken, "_follow_group", fail)
    with caplog.at_level(logging.ERROR, logger="headrace.broker.read.subscription"):
        broker.publish(topic, batch(b"x", partition=0))
        assert take(fine, 1) == [(0, b"x")]
        eventually(lambda: "delivery to 'ann' of group 'broken' failed" in caplog.text)
    broken.close()
    fine.close()


def test_many_subscribers_read_everything_between_them(broker: Broker) -> None:
    broker.create_topic("orders", partitions=6)
    expected = {b"%d" % number for number in range(300)}
    taken: set[bytes] = set()

    def read(member: str) -> None:
        with broker.subscribe("orders", "readers", member, buffer_messages=20) as subscription:
            while taken < expected:
                got = subscription.get(timeout_seconds=0.01)
                taken.update([] if got is None else values_of(got))

    def publish(first: int) -> None:
        for number in range(first, 300, 3):
            broker.publish("orders", batch(b"%d" % number))

    together([*(partial(read, f"member-{number}") for number in range(3)), *(partial(publish, n) for n in range(3))])
    assert taken == expected


def test_messages_that_are_deleted_on_request_are_skipped_in_the_buffer_too(broker: Broker, topic: str) -> None:
    with broker.subscribe(topic, "readers", "ann", buffer_messages=8) as subscription:
        until_buffered(subscription, 8)
        broker.delete_messages(topic, {0: 5, 1: 4})
        assert take(subscription, 1) == [(1, b"b4")]
        assert subscription.get() is None
        broker.delete_messages(topic, {1: 5})
        broker.publish(topic, batch(b"later", partition=0))
        assert take(subscription, 1) == [(0, b"later")]

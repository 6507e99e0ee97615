"""Consumers and producers of the queue API: their ids, and the one order in which all consumers read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.broker.queue_api.ordered_reader import AHEAD_BYTES, AHEAD_MESSAGES, Taken
from headrace.broker.queue_api.registrations import CONSUMER_PREFIX, group_name
from headrace.core.errors import (
    Closed,
    GroupNotFound,
    IdNotFound,
    InvalidInput,
    StoreUnavailable,
    TopicDeleted,
    TopicExists,
    TopicNotFound,
)
from headrace.core.groups.group import Group
from headrace.core.ids import make_id
from tests.broker.background import together
from tests.broker.clock import SettableClock
from tests.broker.messages import batch
from tests.broker.sites import DURABLE_ENGINES, Site


def read(broker: Broker, topic: str, consumer: int) -> list[bytes]:
    """All messages that are left for a consumer."""
    messages = []
    while (taken := broker.registrations.consume(topic, consumer)) is not None:
        messages.append(taken.value or b"")
    return messages


# Topics


def test_a_topic_is_made_once(broker: Broker) -> None:
    broker.registrations.create_topic("Orders", 3)
    assert broker.describe_topic("orders").partitions == 3
    with pytest.raises(TopicExists) as caught:
        broker.registrations.create_topic("ORDERS", 5)
    assert caught.value.topic == "ORDERS"
    assert broker.describe_topic("orders").partitions == 3
    with pytest.raises(InvalidInput):
        broker.registrations.create_topic("other", 0)
    assert broker.list_topics() == ["Orders"]


def test_registering_a_producer_makes_a_topic_that_is_missing_and_leaves_one_that_exists(broker: Broker) -> None:
    broker.registrations.register_producer("orders", 3)
    broker.registrations.register_producer("orders", 5)
    assert broker.describe_topic("orders").partitions == 3


def test_a_topic_that_is_missing_has_no_participants(broker: Broker) -> None:
    calls: list[Callable[[], object]] = [
        lambda: broker.registrations.register_consumer("orders"),
        lambda: broker.registrations.check_producer("orders", 1),
        lambda: broker.registrations.knows_producer("orders", 1),
        lambda: broker.registrations.consume("orders", 1),
        lambda: broker.registrations.size("orders", 1),
    ]
    for call in calls:
        with pytest.raises(TopicNotFound):
            call()
    assert not broker.registrations.has_topic("orders")


# Ids


def test_ids_count_by_topic_and_kind(broker: Broker) -> None:
    first, second = broker.create_topic("a").id, broker.create_topic("b").id
    registrations = broker.registrations
    assert [registrations.register_consumer("a") for _ in range(2)] == [
        make_id("consumer", number, first) for number in (1, 2)
    ]
    assert registrations.register_producer("a") == make_id("producer", 1, first)
    assert registrations.register_consumer("b") == make_id("consumer", 1, second)


def test_a_producer_is_known_without_a_look_into_the_catalog_once_it_was_checked(durable_site: Site) -> None:
    broker = durable_site.open()
    producer = broker.registrations.register_producer("orders")
    assert broker.registrations.knows_producer("ORDERS", producer)
    broker = durable_site.reopen(broker)
    assert not broker.registrations.knows_producer("orders", producer)
    broker.registrations.check_producer("orders", producer)
    assert broker.registrations.knows_producer("orders", producer)
    for wrong in (producer + 1, producer - 1, 2 * producer, 0, -producer, 10**28):
        assert not broker.registrations.knows_producer("orders", wrong)
        with pytest.raises(IdNotFound):
            broker.registrations.check_producer("orders", wrong)


def test_a_number_that_another_server_gave_out_is_found(broker: Broker) -> None:
    topic_id = broker.create_topic("orders").id
    broker.registrations.register_producer("orders")
    assert broker.store.catalog.take_number(topic_id, "producer") == 2
    second = make_id("producer", 2, topic_id)
    assert not broker.registrations.knows_producer("orders", second)
    broker.registrations.check_producer("orders", second)
    assert broker.registrations.knows_producer("orders", second)


def test_a_group_that_someone_else_made_is_not_taken_for_a_consumer(broker: Broker) -> None:
    topic_id = broker.create_topic("orders").id
    broker.publish("orders", batch(b"a"))
    broker.register_group("orders", group_name(make_id("consumer", 1, topic_id)), read_from="latest")
    consumer = broker.registrations.register_consumer("orders")
    assert consumer == make_id("consumer", 2, topic_id)
    assert read(broker, "orders", consumer) == [b"a"]


def test_ids_of_a_deleted_topic_mean_nothing_in_the_next_one_of_its_name(broker: Broker) -> None:
    consumer = broker.registrations.register_consumer(broker.create_topic("orders").name)
    producer = broker.registrations.register_producer("orders")
    assert broker.registrations.size("orders", consumer) == 0
    broker.delete_topic("orders")
    broker.create_topic("orders")
    with pytest.raises(IdNotFound):
        broker.registrations.size("orders", consumer)
    with pytest.raises(IdNotFound):
        broker.registrations.check_producer("orders", producer)
    assert not broker.registrations.knows_producer("orders", producer)
    assert len(broker.registrations._known) == 1


def test_a_topic_that_goes_while_it_is_asked_gives_no_number(broker: Broker) -> None:
    topic_id = broker.create_topic("orders").id
    broker.store.catalog.remove_topic(topic_id)
    with pytest.raises(TopicNotFound):
        broker.registrations.register_producer("orders")
    with pytest.raises(TopicNotFound):
        broker.registrations.size("orders", make_id("consumer", 1, topic_id))


def test_a_consumer_whose_group_was_deleted_gets_an_error(broker: Broker) -> None:
    broker.create_topic("orders")
    consumer = broker.registrations.register_consumer("orders")
    broker.registrations.size("orders", consumer)
    broker.delete_group("orders", group_name(consumer))
    for ask in (broker.registrations.consume, broker.registrations.size):
        with pytest.raises(GroupNotFound):
            ask("orders", consumer)


# Order


def test_a_consumer_sees_everything_from_the_first_message_on(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.publish("orders", batch(b"a", b"b"))
    consumer = broker.registrations.register_consumer("orders")
    broker.publish("orders", batch(b"c"))
    assert broker.registrations.size("orders", consumer) == 3
    assert broker.registrations.consume("orders", consumer) == Taken(b"a", None, 0)
    assert broker.registrations.size("orders", consumer) == 2
    assert read(broker, "orders", consumer) == [b"b", b"c"]
    assert broker.registrations.size("orders", consumer) == 0
    broker.publish("orders", batch(b"d"))
    assert read(broker, "orders", consumer) == [b"d"]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in (2, 3, 4))])
def test_all_consumers_read_all_partitions_in_the_order_of_commits(site: Site, seed: int) -> None:
    """At random: publishing, adding partitions, reading by consumers that come early or late, the clock or not."""
    chance = random.Random(seed)
    broker = site.open()
    broker.create_topic("orders", partitions=2)
    written: list[bytes] = []
    seen: dict[int, list[bytes]] = {}
    for step in range(40 if site.engine.is_shared else 150):
        action = chance.choice(["publish"] * 4 + ["read"] * 3 + ["join", "grow", "tick"])
        partitions = broker.describe_topic("orders").partitions
        if action == "publish":
            rows = sorted(chance.randrange(partitions) for _ in range(chance.randint(1, 4)))
            values = [b"%d-%d" % (step, row) for row in range(len(rows))]
            broker.publish("orders", batch(*values, partition=rows))
            written += values
        elif action == "join" and len(seen) < 5:
            seen[broker.registrations.register_consumer("orders")] = []
        elif action == "grow" and partitions < 6:
            broker.alter_topic("orders", partitions=partitions + 1)
        elif action == "tick":
            site.clock.step(chance.choice([0.001, 1, -5]))
        elif action == "read" and seen:
            consumer = chance.choice(sorted(seen))
            taken = broker.registrations.consume("orders", consumer)
            if taken is not None:
                seen[consumer].append(taken.value or b"")
            assert broker.registrations.size("orders", consumer) == len(written) - len(seen[consumer])
    for consumer, messages in seen.items():
        assert messages + read(broker, "orders", consumer) == written


def test_what_is_read_ahead_ends_and_continues(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    large = bytes(AHEAD_BYTES + 1)
    values = [b"%d" % number for number in range(AHEAD_MESSAGES + 10)] + [large, b"x", large, large, b"y"]
    for number, value in enumerate(values):
        broker.publish("orders", batch(value, partition=number % 2))
    assert read(broker, "orders", broker.registrations.register_consumer("orders")) == values


def test_a_message_says_how_it_is_packed(broker: Broker) -> None:
    broker.create_topic("orders", codecs=["raw", "gzip"])
    broker.publish("orders", batch(b"a", b"b", codec=["gzip", None]))
    consumer = broker.registrations.register_consumer("orders")
    assert broker.registrations.consume("orders", consumer) == Taken(b"a", "gzip", 0)
    assert broker.registrations.consume("orders", consumer) == Taken(b"b", None, 1)


# Position


def test_the_position_is_where_it_was_after_a_restart_and_after_a_crash(disk_site: Site, tmp_path: Path) -> None:
    broker = disk_site.open()
    broker.create_topic("orders", partitions=3)
    consumer = broker.registrations.register_consumer("orders")
    values = [b"%d" % number for number in range(20)]
    for value in values:
        broker.publish("orders", batch(value))
    before = [broker.registrations.consume("orders", consumer) for _ in range(7)]
    assert [taken.value for taken in before if taken is not None] == values[:7]
    after_crash = disk_site.crashed(tmp_path / "crashed")
    assert read(after_crash.open(), "orders", consumer) == values[7:]
    after_crash.close()
    broker = disk_site.reopen(broker)
    assert broker.registrations.size("orders", consumer) == 13
    assert read(broker, "orders", consumer) == values[7:]
    assert broker.registrations.register_consumer("orders") == consumer + make_id("consumer", 1, 0)


def test_many_requests_of_one_consumer_share_the_messages_out(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)
    values = [b"%03d" % number for number in range(200)]
    for value in values:
        broker.publish("orders", batch(value))
    consumer = broker.registrations.register_consumer("orders")
    parts = together([lambda: read(broker, "orders", consumer)] * 4)
    assert sorted(value for part in parts for value in part) == values
    assert all(part == sorted(part) for part in parts)


def test_consumers_read_while_producers_publish(broker: Broker) -> None:
    broker.create_topic("orders", partitions=4)
    consumers = [broker.registrations.register_consumer("orders") for _ in range(3)]

    def publish(name: bytes) -> list[bytes]:
        for number in range(100):
            broker.publish("orders", batch(b"%s%03d" % (name, number)))
        return []

    def follow(consumer: int) -> list[bytes]:
        messages: list[bytes] = []
        while len(messages) < 200:
            messages += read(broker, "orders", consumer)
        return messages

    works: list[Callable[[], list[bytes]]] = [lambda: publish(b"a"), lambda: publish(b"b")]
    works += [lambda consumer=consumer: follow(consumer) for consumer in consumers]  # type: ignore[misc]
    seen = together(works)[2:]
    assert seen[0] == seen[1] == seen[2]
    for name in (b"a", b"b"):
        assert [value for value in seen[0] if value.startswith(name)] == [b"%s%03d" % (name, n) for n in range(100)]


def test_a_seek_counts_from_the_next_read_on(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    for number in range(10):
        broker.publish("orders", batch(b"%d" % number, partition=number % 2))
    consumer = broker.registrations.register_consumer("orders")
    assert len(read(broker, "orders", consumer)) == 10
    broker.seek("orders", group_name(consumer), {0: 3, 1: 4})
    assert broker.registrations.size("orders", consumer) == 3
    assert read(broker, "orders", consumer) == [b"6", b"8", b"9"]
    broker.seek("orders", group_name(consumer), {0: 0})
    assert broker.registrations.consume("orders", consumer) == Taken(b"0", None, 5)
    broker.commit_offsets("orders", group_name(consumer), {0: 4})
    assert read(broker, "orders", consumer) == [b"8"]


def test_a_seek_between_looking_and_moving_is_not_overrun(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("orders")
    broker.publish("orders", batch(b"a", b"b", b"c"))
    consumer = broker.registrations.register_consumer("orders")
    assert read(broker, "orders", consumer) == [b"a", b"b", b"c"]
    broker.seek("orders", group_name(consumer), {0: 2})
    groups = broker.topics.find("orders").groups
    advance, seeks = groups.advance, [{0: 0}]

    def advance_after_seek(*arguments: Any) -> bool:
        if seeks:
            groups.seek(group_name(consumer), seeks.pop())
        return advance(*arguments)

    monkeypatch.setattr(groups, "advance", advance_after_seek)
    assert read(broker, "orders", consumer) == [b"a", b"b", b"c"]


def test_a_seek_before_the_first_offset_of_a_group_is_stored_is_not_overrun(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("orders")
    broker.publish("orders", batch(b"a", b"b", b"c"))
    consumer = broker.registrations.register_consumer("orders")
    groups = broker.topics.find("orders").groups
    claim, seeks = groups.claim, [{0: 1}]

    def claim_after_seek(*arguments: Any) -> bool:
        if seeks:
            groups.seek(group_name(consumer), seeks.pop())
        return claim(*arguments)

    monkeypatch.setattr(groups, "claim", claim_after_seek)
    assert read(broker, "orders", consumer) == [b"b", b"c"]


def test_nothing_is_given_out_if_the_position_cannot_be_stored(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("orders")
    broker.publish("orders", batch(b"a", b"b"))
    consumer = broker.registrations.register_consumer("orders")

    def fail(*_: object) -> None:
        raise StoreUnavailable("here", "no disk")

    with monkeypatch.context() as patched:
        patched.setattr(broker.store.catalog, "write_groups", fail)
        patched.setattr(broker.store.catalog, "change_group", fail)
        patched.setattr(broker.store.catalog, "advance", fail)
        with pytest.raises(StoreUnavailable):
            broker.registrations.consume("orders", consumer)
    assert broker.registrations.size("orders", consumer) == 2
    assert read(broker, "orders", consumer) == [b"a", b"b"]


# Places


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in (1, 2))])
def test_a_place_is_the_same_for_all_consumers_and_is_found_again(site: Site, seed: int) -> None:
    """Messages over partitions that are added on the way; every place, before and after a restart."""
    chance = random.Random(seed)
    broker = site.open()
    broker.create_topic("orders", partitions=2)
    for step in range(12):
        partitions = 2 + step // 4
        broker.alter_topic("orders", partitions=partitions)
        rows = [chance.randrange(partitions) for _ in range(chance.randint(1, 5))]
        broker.publish("orders", batch(*(b"%d-%d" % (step, row) for row in range(len(rows))), partition=rows))
        site.clock.step(chance.choice([0, 0.001, 1, 3600]))
    consumers = [broker.registrations.register_consumer("orders") for _ in range(2)]
    taken: dict[int, list[Taken]] = {consumer: [] for consumer in consumers}
    for consumer in consumers:
        while (message := broker.registrations.consume("orders", consumer)) is not None:
            taken[consumer].append(message)
    messages = taken[consumers[0]]
    assert taken[consumers[1]] == messages
    assert [message.place for message in messages] == list(range(len(messages)))
    if site.engine in DURABLE_ENGINES:
        broker = site.reopen(broker)
    for place in [-1, len(messages) - 1, *chance.sample(range(len(messages)), 8)]:
        broker.registrations.set_place(consumers[0], place)
        assert broker.registrations.size("orders", consumers[0]) == len(messages) - place - 1
        following = messages[place + 1] if place + 1 < len(messages) else None
        assert broker.registrations.consume("orders", consumers[0]) == following


def test_a_place_that_was_dropped_is_the_first_that_is_kept(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", partitions=2, retention_seconds=10)
    consumer = broker.registrations.register_consumer("orders")
    for number in range(20):
        broker.publish("orders", batch(b"%d" % number, partition=number % 2))
    clock.step(60)
    for number in range(20, 24):
        broker.publish("orders", batch(b"%d" % number, partition=number % 2))
    broker.maintenance.run_all()
    kept = sum(end - start for start, end in broker.offsets("orders").values())
    assert kept < 24
    for place in (-1, 0, 24 - kept - 1):
        broker.registrations.set_place(consumer, place)
        taken = broker.registrations.consume("orders", consumer)
        assert taken == Taken(b"%d" % (24 - kept), None, 24 - kept)
    broker.registrations.set_place(consumer, 22)
    assert read(broker, "orders", consumer) == [b"23"]


def test_a_place_that_no_message_has_is_refused(broker: Broker) -> None:
    broker.create_topic("orders")
    consumer = broker.registrations.register_consumer("orders")
    broker.registrations.set_place(consumer, -1)
    for place in (-2, 0, 10**12):
        with pytest.raises(InvalidInput) as caught:
            broker.registrations.set_place(consumer, place)
        assert caught.value.field == "offset"
    with pytest.raises(IdNotFound):
        broker.registrations.set_place(make_id("consumer", 1, 999), 0)
    with pytest.raises(IdNotFound):
        broker.registrations.set_place(consumer + 1, 0)


# Clients that count


def test_a_client_counts_what_it_sent_through_restarts(durable_site: Site, tmp_path: Path) -> None:
    broker = durable_site.open()
    for topic in ("a", "b"):
        broker.create_topic(topic, partitions=2)
    count = broker.registrations.clients.count
    assert count("till", ["a", "b"]) == 0
    for number in range(5):
        broker.publish_numbered("a", "till", b"%d" % number)
    broker.publish_numbered("b", "till", b"x", partition=1)
    broker.publish_numbered("a", "other", b"y")
    assert (count("till", ["a", "b"]), count("till", ["b"]), count("other", ["a", "b"])) == (6, 1, 1)
    crashed = durable_site.crashed(tmp_path / "crashed").open()
    assert crashed.registrations.clients.count("till", ["a", "b"]) == 6
    broker = durable_site.reopen(broker)
    broker.publish_numbered("a", "till", b"5")
    assert broker.registrations.clients.count("till", ["a", "b"]) == 7
    consumer = broker.registrations.register_consumer("a")
    assert [value for value in read(broker, "a", consumer) if value != b"y"] == [b"%d" % n for n in range(6)]


def test_a_client_that_sends_through_two_servers_is_counted_once_a_message(shared_site: Site) -> None:
    brokers = [shared_site.open(), shared_site.open()]
    brokers[0].create_topic("orders")

    def send(broker: Broker) -> None:
        for number in range(20):
            broker.publish_numbered("orders", "till", b"%d" % number)

    together([lambda broker=broker: send(broker) for broker in brokers * 2])  # type: ignore[misc]
    assert [broker.registrations.clients.count("till", ["orders"]) for broker in brokers] == [80, 80]
    assert len(read(brokers[0], "orders", brokers[0].registrations.register_consumer("orders"))) == 80


def test_a_message_that_repeats_is_not_counted(broker: Broker) -> None:
    broker.create_topic("orders", deduplication="payload")
    for value in (b"a", b"a", b"b"):
        broker.publish_numbered("orders", "till", value)
    assert broker.registrations.clients.count("till", ["orders"]) == 2
    broker.delete_topic("orders")
    with pytest.raises(TopicNotFound):
        broker.registrations.clients.count("till", ["orders"])


# Consumers that are idle


def test_a_consumer_that_nobody_uses_is_forgotten(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders")
    idle, used = (broker.registrations.register_consumer("orders") for _ in range(2))
    broker.register_group("orders", "billing")
    broker.maintenance.run_all()
    day = 86_400
    site.clock.step(20 * day)
    assert broker.registrations.size("orders", used) == 0
    site.clock.step(11 * day)
    broker.maintenance.run_all()
    assert broker.list_groups("orders") == ["billing", group_name(used)]
    assert broker.counters.snapshot()["queue_consumers_forgotten"] == 1
    with pytest.raises(GroupNotFound):
        broker.registrations.consume("orders", idle)
    site.clock.step(31 * day)
    broker.maintenance.run_all()
    assert broker.list_groups("orders") == ["billing"]


def test_consumers_that_were_deleted_already_are_forgotten_without_an_error(site: Site) -> None:
    broker = site.open()
    for topic in ("a", "b"):
        broker.create_topic(topic)
        broker.register_group(topic, f"{CONSUMER_PREFIX}none")
        consumer = broker.registrations.register_consumer(topic)
        assert broker.registrations.size(topic, consumer) == 0
    broker.maintenance.run_all()
    broker.delete_topic("a")
    broker.delete_group("b", group_name(consumer))
    site.clock.step(31 * 86_400)
    broker.maintenance.run_all()
    assert broker.list_groups("b") == []


# Retention and the end


def test_what_retention_drops_is_passed_over(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", partitions=2, retention_seconds=10)
    consumer = broker.registrations.register_consumer("orders")
    for number in range(8):
        broker.publish("orders", batch(b"%d" % number, partition=number % 2))
    assert broker.registrations.consume("orders", consumer) == Taken(b"0", None, 0)
    clock.step(60)
    for number in range(8, 12):
        broker.publish("orders", batch(b"%d" % number, partition=number % 2))
    broker.maintenance.run_all()
    left = broker.registrations.size("orders", consumer)
    seen = read(broker, "orders", consumer)
    assert len(seen) == left
    assert seen == [b"%d" % number for number in range(12 - left, 12)]


def test_what_retention_drops_between_looking_and_reading_is_passed_over(
    broker: Broker, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("orders", partitions=2, retention_seconds=10)
    consumer = broker.registrations.register_consumer("orders")
    for number in range(8):
        broker.publish("orders", batch(b"%d" % number, partition=number % 2))
    clock.step(60)
    groups, drops = broker.topics.find("orders").groups, [True]
    standing = groups.standing

    def standing_before_retention(name: str) -> tuple[Group, dict[int, int]]:
        seen = standing(name)
        if drops and drops.pop():
            broker.maintenance.run_all()
        return seen

    monkeypatch.setattr(groups, "standing", standing_before_retention)
    seen = read(broker, "orders", consumer)
    kept = sum(end - start for start, end in broker.offsets("orders").values())
    assert kept < 8
    assert seen == [b"%d" % number for number in range(8 - kept, 8)]


def test_a_consumer_of_a_deleted_topic_gets_an_error(broker: Broker) -> None:
    broker.create_topic("orders")
    consumer = broker.registrations.register_consumer("orders")
    reader = broker.registrations._reader("orders", consumer)
    broker.delete_topic("orders")
    for ask in (reader.take, reader.left):
        with pytest.raises(TopicDeleted):
            ask()


def test_a_closed_broker_says_so(broker: Broker) -> None:
    broker.create_topic("orders")
    consumer = broker.registrations.register_consumer("orders")
    broker.close()
    with pytest.raises(Closed):
        broker.registrations.consume("orders", consumer)
    with pytest.raises(Closed):
        broker.registrations.register_producer("orders")


def test_prefetched_messages_that_are_deleted_are_not_delivered(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    broker.publish("orders", batch(b"a0", b"a1", b"a2", b"b0", b"b1", partition=[0, 0, 0, 1, 1]))
    consumer = broker.registrations.register_consumer("orders")
    assert broker.registrations.consume("orders", consumer) == Taken(b"a0", None, 0)
    broker.delete_messages("orders", {0: 2, 1: 1})
    assert broker.registrations.consume("orders", consumer) == Taken(b"a2", None, 3)
    assert read(broker, "orders", consumer) == [b"b1"]

"""Closing: what was accepted is finished, who waits is told, and nothing is let in any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.broker.describe import describe_topic
from headrace.broker.settings import BrokerSettings
from headrace.core.errors import Closed, HeadraceError, InvalidInput, StoreUnavailable, TopicDeleted
from headrace.core.publish.state import CommitKey
from headrace.storage.open import open_store
from tests.broker.background import Background, eventually, open_gated, together, until_queued, until_waiting
from tests.broker.messages import batch, content, read_as_member, statuses
from tests.broker.sites import Site


def test_a_closed_broker_says_so_whatever_is_asked(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders")
    broker.close()
    uses: list[Callable[[], Any]] = [
        partial(broker.create_topic, "orders"),
        partial(broker.create_topic, "new"),
        partial(broker.alter_topic, "orders", partitions=2),
        partial(broker.delete_topic, "orders"),
        broker.list_topics,
        partial(broker.describe_topic, "orders"),
        partial(broker.offsets, "orders"),
        partial(broker.publish, "orders", batch(b"a")),
        partial(broker.last_seqno, "orders", "p"),
        partial(broker.last_commit, "orders", "w"),
        partial(broker.stage, "orders", batch(b"a")),
        partial(broker.publish_staged, "orders", []),
        partial(broker.drop_stages, "orders", []),
        partial(broker.fetch, "orders", 0, 0),
        partial(broker.offset_at, "orders", 0, 0),
        partial(broker.register_group, "orders", "g"),
        partial(broker.join_group, "orders", "g", "ann"),
        partial(broker.heartbeat, "orders", "g", "ann"),
        partial(broker.leave_group, "orders", "g", "ann"),
        partial(broker.commit_offsets, "orders", "g", {}),
        partial(broker.committed, "orders", "g"),
        partial(broker.seek, "orders", "g", {}),
        partial(broker.delete_group, "orders", "g"),
        partial(broker.list_groups, "orders"),
        partial(broker.describe_group, "orders", "g"),
    ]
    for use in uses:
        with pytest.raises(Closed, match="the broker is closed"):
            use()


def test_closing_twice_is_closing_once(site: Site) -> None:
    broker = site.open()
    broker.close()
    broker.close()
    with pytest.raises(Closed), broker:
        broker.list_topics()


def test_threads_that_close_together_all_wait_until_it_is_closed(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders")

    def close() -> None:
        broker.close()
        # The lock is free: the store can be opened by another.
        with pytest.raises(Closed):
            broker.list_topics()

    together([close] * 4)
    durable_site.open()


def test_closing_finishes_what_was_accepted_and_refuses_the_rest(durable_site: Site) -> None:
    broker, store = open_gated(durable_site, queue_messages_per_partition=4)
    broker.create_topic("orders")
    store.gate.clear()
    accepted = [Background(partial(broker.publish, "orders", batch(b"in", b"in"))) for _ in range(2)]
    until_queued(broker, "orders", 4)
    waiting = Background(lambda: broker.publish("orders", batch(b"out")))
    intake = broker.topics.find("orders").topic.intake
    eventually(lambda: intake.in_line == 1)
    closing = Background(broker.close)
    with pytest.raises(Closed):
        waiting.result()
    assert not closing.is_done
    store.gate.set()
    for publisher in accepted:
        assert statuses(publisher.result()) == ["written"] * 2
    closing.result()
    assert content(durable_site.open(), "orders") == {0: [b"in"] * 4}


def test_closing_ends_readers_that_wait(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders")
    readers = [Background(lambda: broker.fetch("orders", 0, 0, wait_seconds=60)) for _ in range(3)]
    until_waiting(broker, "orders", readers=3)
    broker.close()
    for reader in readers:
        with pytest.raises(Closed, match="the broker is closed"):
            reader.result()


def test_closing_amid_traffic_loses_nothing_that_was_acknowledged(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=3)
    started = threading.Semaphore(0)

    def publish(thread: int) -> list[bytes]:
        acknowledged: list[bytes] = []
        for number in range(100_000):
            value = b"%d-%d" % (thread, number)
            try:
                broker.publish("orders", batch(value), CommitKey(f"w{thread}", number))
            except Closed:
                return acknowledged
            acknowledged.append(value)
            started.release()
        return acknowledged

    def read() -> None:
        while True:
            list(read_as_member(broker, "orders", "readers", f"member-{threading.get_ident()}"))

    def follow() -> None:
        offset = 0
        while True:
            offset += broker.fetch("orders", 1, offset, wait_seconds=60).num_rows

    publishers = [Background(partial(publish, thread)) for thread in range(4)]
    readers = [Background(read), Background(read), Background(follow)]
    for _ in range(50):
        assert started.acquire(timeout=60)
    broker.close()
    acknowledged = sorted(value for publisher in publishers for value in publisher.result())
    for reader in readers:
        with pytest.raises(HeadraceError):
            reader.result()
    broker = durable_site.open()
    assert sorted(value for values in content(broker, "orders").values() for value in values) == acknowledged


def test_a_change_that_comes_after_the_end_is_not_stored(durable_site: Site) -> None:
    """As a call finds it that looked the topic up just before the broker was closed."""
    broker = durable_site.open()
    broker.create_topic("orders", partitions=2)
    broker.register_group("orders", "g")
    found = broker.topics.find("orders")
    broker.close()
    for change in (
        partial(found.groups.register, "new", None, None, "earliest"),
        partial(found.groups.join, "new", "ann", 30),
        partial(found.groups.commit, "g", {0: 0}, None, None),
        partial(found.groups.seek, "g", {0: 0}),
        partial(found.groups.delete, "g"),
        partial(found.topic.between_commits, lambda state: state.next_number),
    ):
        with pytest.raises(Closed, match="the broker"):
            change()
    assert durable_site.open().list_groups("orders") == ["g"]


def test_a_change_that_comes_after_the_deletion_of_its_topic_is_not_stored(site: Site) -> None:
    broker = site.open()
    record = broker.create_topic("orders")
    broker.register_group("orders", "g")
    found = broker.topics.find("orders")
    broker.delete_topic("orders")
    for change in (
        partial(found.groups.register, "new", None, None, "latest"),
        partial(found.groups.join, "new", "ann", 30),
        partial(found.groups.commit, "g", {0: 0}, None, None),
        partial(found.groups.seek, "g", {0: 0}),
        partial(found.groups.delete, "g"),
        partial(found.groups.expire),
        partial(found.topic.between_commits, lambda state: state.next_number),
        partial(found.topic.fetch, 0, 0, 1, 1, 0.0),
        partial(describe_topic, found),
    ):
        with pytest.raises(TopicDeleted):
            change()
    assert broker.store.catalog.groups(record.id) == []


def test_leaving_the_block_closes(disk_site: Site) -> None:
    with Broker.open(disk_site.url) as broker:
        broker.create_topic("orders")
        with pytest.raises(StoreUnavailable, match="has it open"):
            Broker.open(disk_site.url)
    with Broker.open(disk_site.url) as broker:
        assert broker.list_topics() == ["orders"]


def test_a_broker_that_cannot_be_made_leaves_the_store_free(
    durable_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("headrace.broker.broker.Topics", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Broker.open(durable_site.url)
    open_store(durable_site.url).close()


@pytest.mark.parametrize("url", ["", "orders", "ftp:/x", "memory:x", 7, None])
def test_a_url_of_no_store_is_refused(url: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Broker.open(url)
    assert (caught.value.field, caught.value.value) == ("store", repr(url))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queue_bytes", 0),
        ("queue_messages_per_partition", 1.5),
        ("queue_bytes", "many"),
        ("publish_timeout_seconds", -1.0),
        ("publish_timeout_seconds", float("nan")),
        ("sources_max", True),
        ("members_check_seconds", None),
    ],
)
def test_settings_out_of_their_bounds_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        BrokerSettings(**{name: value})
    assert (caught.value.field, caught.value.value) == (name, repr(value))


def test_the_clock_of_the_machine_is_used_unless_another_is_given() -> None:
    with Broker.open("memory:") as broker:
        created_us = broker.create_topic("orders").created_us
        assert created_us <= broker.create_topic("later").created_us
        assert created_us > 1_700_000_000_000_000

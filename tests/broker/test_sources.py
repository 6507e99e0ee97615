"""Sources that are listed and reset: through restarts, crashes, snapshots and other servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.core.errors import InvalidInput, SourceNotFound, TopicNotFound
from headrace.core.publish.receipts import WRITTEN
from headrace.core.reports.descriptions import SourceDescription
from tests.broker.clock import SettableClock
from tests.broker.messages import batch
from tests.broker.sites import Site


def send(broker: Broker, producer: str, *seqnos: int, group: str | None = None) -> list[bool]:
    """Send messages of a source, one by one; which of them were written."""
    outcomes = []
    for seqno in seqnos:
        message = batch(b"%d" % seqno, producer_id=producer, seqno=seqno, message_group_id=group)
        outcomes += (broker.publish("orders", message).outcome == WRITTEN).tolist()
    return outcomes


def test_sources_are_listed_with_seqno_link_and_time_newest_first(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", partitions=3)
    assert broker.list_sources("orders") == []
    began_us = clock.now_us()
    for place, (producer, group) in enumerate([("a", None), ("b", "x"), ("b", "y"), ("c", None)]):
        clock.step(10)
        send(broker, producer, 5, 7 + place, group=group)
    listed = broker.list_sources("orders")
    assert [(each.producer_id, each.message_group_id, each.last_seqno) for each in listed] == [
        ("c", "", 10),
        ("b", "y", 9),
        ("b", "x", 8),
        ("a", "", 7),
    ]
    assert all(each.partition in range(3) for each in listed)
    seconds = [(each.last_seen_us - began_us) / 1e6 for each in listed]
    assert seconds == pytest.approx([40, 30, 20, 10], abs=1)
    assert [each.message_group_id for each in broker.list_sources("orders", "b")] == ["y", "x"]
    assert broker.list_sources("orders", "nobody") == []
    assert broker.list_sources("orders", max_sources=1) == listed[:1]
    clock.step(15 * 86_400)
    assert [each.partition for each in broker.list_sources("orders")] == [None] * 4
    for wrong in (0, -1, 10**9):
        with pytest.raises(InvalidInput):
            broker.list_sources("orders", max_sources=wrong)


def test_a_source_that_is_reset_starts_over_and_the_others_do_not(broker: Broker) -> None:
    """One message with a huge seqno makes all later ones duplicates: after a reset they are written."""
    broker.create_topic("orders", partitions=2)
    send(broker, "till", 1, 2, 1 << 40)
    send(broker, "other", 1, 2)
    send(broker, "till", 4, group="lane")
    before = broker.list_sources("orders", "other")
    assert send(broker, "till", 3) == [False]
    assert broker.reset_source("orders", "till") == 1 << 40
    assert broker.last_seqno("orders", "till") is None
    assert broker.last_seqno("orders", "till", "lane") == 4
    assert broker.list_sources("orders", "other") == before
    assert broker.reset_source("orders", "till") is None
    assert send(broker, "till", 3, 3, 4) == [True, False, True]
    assert send(broker, "other", 2, 3) == [False, True]
    assert broker.last_seqno("orders", "till") == 4
    offsets = broker.offsets("orders")
    assert sum(end for _, end in offsets.values()) == 3 + 2 + 1 + 2 + 1


def test_a_reset_keeps_the_partition_of_the_source(broker: Broker) -> None:
    broker.create_topic("orders", partitions=5)
    for producer in ("a", "b", "c"):
        send(broker, producer, 9)
    before = {each.producer_id: each.partition for each in broker.list_sources("orders")}
    broker.reset_source("orders", "b")
    assert {each.producer_id: each.partition for each in broker.list_sources("orders")} == before
    send(broker, "b", 1)
    assert broker.list_sources("orders", "b")[0].partition == before["b"]


def test_what_is_not_there_is_not_reset(broker: Broker) -> None:
    with pytest.raises(TopicNotFound):
        broker.reset_source("orders", "till")
    broker.create_topic("orders")
    send(broker, "till", 1)
    with pytest.raises(SourceNotFound) as caught:
        broker.reset_source("orders", "till", "lane")
    assert "'till' with message group 'lane'" in str(caught.value)
    with pytest.raises(SourceNotFound):
        broker.reset_source("orders", "nobody")
    assert broker.last_seqno("orders", "till") == 1


@pytest.mark.parametrize("after", [0, 1, 20])
def test_a_reset_survives_a_restart_and_a_crash(durable_site: Site, tmp_path: Path, after: int) -> None:
    """With no, one or many commits of others behind it, which roll segments and make snapshots."""
    broker = durable_site.open()
    broker.create_topic("orders")
    send(broker, "till", 100)
    send(broker, "reset twice", 100)
    broker.reset_source("orders", "reset twice")
    send(broker, "reset twice", 50)
    broker.reset_source("orders", "reset twice")
    broker.reset_source("orders", "till")
    send(broker, "other", *range(after))

    def check(opened: Broker) -> None:
        assert opened.last_seqno("orders", "till") is None
        assert opened.last_seqno("orders", "reset twice") is None
        assert opened.last_seqno("orders", "other") == (after - 1 if after else None)

    crashed = durable_site.crashed(tmp_path / "crashed").open()
    check(crashed)
    crashed.close()
    broker = durable_site.reopen(broker)
    check(broker)
    assert send(broker, "till", 1, 2) == [True, True]
    again = durable_site.crashed(tmp_path / "again").open()
    assert again.last_seqno("orders", "till") == 2
    assert send(again, "till", 2, 3) == [False, True]


def test_a_reset_through_one_server_counts_on_the_others(shared_site: Site) -> None:
    first, second = shared_site.open(), shared_site.open()
    first.create_topic("orders")
    send(first, "till", 1, 100)
    assert send(second, "till", 50) == [False]
    assert first.reset_source("orders", "till") == 100
    assert send(second, "till", 1, 2) == [True, True]
    assert send(first, "till", 2, 3) == [False, True]
    assert second.reset_source("orders", "till") == 3
    assert first.list_sources("orders") == second.list_sources("orders")
    assert isinstance(first.list_sources("orders")[0], SourceDescription)

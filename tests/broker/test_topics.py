"""Topics: made, found, changed, deleted."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.broker import Broker, BrokerSettings
from headrace.core.errors import (
    InvalidInput,
    PartitionNotFound,
    PartitionsCannotShrink,
    QuotaExceeded,
    SettingsConflict,
    StoreUnavailable,
    TopicDeleted,
    TopicNotFound,
)
from headrace.core.topics.settings import TopicSettings
from tests.broker.background import Background, together, until_waiting
from tests.broker.clock import START_US
from tests.broker.messages import batch, content, places, values_of
from tests.broker.sites import Site


def test_a_new_topic_has_one_empty_partition_and_the_defaults(broker: Broker) -> None:
    described = broker.create_topic("orders")
    assert described == broker.describe_topic("orders")
    assert (described.name, described.partitions, described.offsets) == ("orders", 1, {0: (0, 0)})
    assert described.settings == TopicSettings()
    assert described.created_us == START_US
    assert described.groups == []


def test_settings_are_kept_as_they_were_given(broker: Broker) -> None:
    given: dict[str, Any] = {
        "retention_seconds": 60,
        "retention_bytes": 1000,
        "deduplication": "payload",
        "deduplication_window_seconds": 5,
        "deduplication_scope": "store",
        "codecs": ["raw", "zstd"],
        "message_bytes_max": 100,
        "key_hash": "murmur2",
        "timestamp_type": "broker",
    }
    assert broker.create_topic("orders", partitions=3, **given).settings == TopicSettings.make(**given)


def test_case_is_kept_for_showing_and_ignored_for_finding(broker: Broker) -> None:
    broker.create_topic("Orders")
    broker.publish("ORDERS", batch(b"a"))
    assert broker.list_topics() == ["Orders"]
    assert broker.describe_topic("orders").name == "Orders"
    assert broker.create_topic("oRdErS").name == "Orders"
    assert values_of(broker.fetch("orders", 0, 0)) == [b"a"]
    broker.delete_topic("ORDERs")
    assert broker.list_topics() == []


def test_letters_written_in_two_ways_are_one_name(broker: Broker) -> None:
    broker.create_topic("Stra\N{LATIN SMALL LETTER SHARP S}e")
    broker.create_topic("caf\N{LATIN SMALL LETTER E WITH ACUTE}")
    assert broker.describe_topic("STRASSE").name == "Stra\N{LATIN SMALL LETTER SHARP S}e"
    assert broker.describe_topic("cafe\N{COMBINING ACUTE ACCENT}").partitions == 1
    assert len(broker.list_topics()) == 2


def test_topics_are_listed_in_the_order_they_were_made(broker: Broker) -> None:
    for name in ("b", "a", "c"):
        broker.create_topic(name)
    broker.delete_topic("a")
    broker.create_topic("a")
    assert broker.list_topics() == ["b", "c", "a"]


@pytest.mark.parametrize("name", ["x" * 255, "all_topics", "quote's", 'say "hi"', "../up", "a/b", "%", "ünïcödé", " "])
def test_a_name_may_be_almost_anything(broker: Broker, name: str) -> None:
    broker.create_topic(name)
    broker.publish(name, batch(b"a"))
    assert broker.list_topics() == [name]
    assert content(broker, name) == {0: [b"a"]}


# Creating again


def test_creating_again_with_the_same_count_changes_nothing(broker: Broker) -> None:
    first = broker.create_topic("orders", partitions=3, retention_seconds=60)
    assert broker.create_topic("orders", partitions=3, retention_seconds=60) == first
    assert broker.create_topic("orders", partitions=3) == first
    assert broker.create_topic("orders") == first


def test_creating_again_with_more_partitions_adds_them(broker: Broker) -> None:
    broker.create_topic("orders", partitions=1)
    broker.publish("orders", batch(b"a"))
    grown = broker.create_topic("orders", partitions=3)
    assert grown.offsets == {0: (0, 1), 1: (0, 0), 2: (0, 0)}


def test_creating_again_with_fewer_partitions_is_refused(broker: Broker) -> None:
    broker.create_topic("Orders", partitions=3)
    with pytest.raises(PartitionsCannotShrink) as caught:
        broker.create_topic("orders", partitions=2)
    assert (caught.value.field, caught.value.value) == ("partitions", "2")
    assert "'Orders' has 3 partitions" in caught.value.rule
    assert broker.describe_topic("orders").partitions == 3


def test_creating_again_with_other_settings_is_refused_and_adds_no_partitions(broker: Broker) -> None:
    broker.create_topic("orders", retention_seconds=60)
    with pytest.raises(SettingsConflict) as caught:
        broker.create_topic("orders", partitions=2, retention_seconds=61)
    conflict = caught.value
    assert (conflict.topic, conflict.setting, conflict.value, conflict.present) == (
        "orders",
        "retention_seconds",
        "61",
        "60",
    )
    assert broker.describe_topic("orders").partitions == 1


def test_threads_that_create_one_topic_make_one_topic(broker: Broker) -> None:
    made = together([lambda: broker.create_topic("orders", partitions=2)] * 8)
    assert len({described.id for described in made}) == 1
    assert broker.list_topics() == ["orders"]


# Altering


def test_altering_changes_what_is_named(broker: Broker) -> None:
    broker.create_topic("orders", retention_seconds=60, message_bytes_max=10)
    altered = broker.alter_topic("ORDERS", partitions=2, retention_seconds=None)
    assert (altered.partitions, altered.settings) == (2, TopicSettings.make(message_bytes_max=10))
    assert broker.describe_topic("orders") == altered


def test_an_altered_setting_counts_from_the_next_message(broker: Broker) -> None:
    broker.create_topic("orders", message_bytes_max=3)
    with pytest.raises(InvalidInput):
        broker.publish("orders", batch(b"long"))
    broker.alter_topic("orders", message_bytes_max=4)
    broker.publish("orders", batch(b"long"))
    assert content(broker, "orders") == {0: [b"long"]}


def test_the_version_of_topics_changes_with_them_alone(broker: Broker) -> None:
    versions = [broker.topics_version()]

    def has_changed() -> bool:
        versions.append(broker.topics_version())
        return versions[-1] != versions[-2]

    broker.create_topic("t")
    assert has_changed()
    broker.alter_topic("t", 2)
    assert has_changed()
    broker.publish("t", batch(b"a"))
    broker.register_group("t", "g")
    broker.list_topics()
    assert not has_changed()
    broker.delete_topic("t")
    assert has_changed()


def test_altering_to_fewer_partitions_is_refused(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    with pytest.raises(PartitionsCannotShrink):
        broker.alter_topic("orders", partitions=1)


def test_an_alteration_is_taken_whole_or_not_at_all(broker: Broker) -> None:
    before = broker.create_topic("orders")
    with pytest.raises(InvalidInput):
        broker.alter_topic("orders", partitions=4, retention_seconds=0)
    assert broker.describe_topic("orders") == before
    assert places(broker.publish("orders", batch(b"a", b"b"))) == [(0, 0), (0, 1)]


def test_settings_and_partitions_survive_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("Orders", partitions=2, codecs=["zstd"])
    broker.alter_topic("orders", partitions=5, retention_seconds=7)
    before = broker.describe_topic("orders")
    reopened = durable_site.reopen(broker)
    assert reopened.list_topics() == ["Orders"]
    assert reopened.describe_topic("orders") == before


# Added partitions take part at once


def test_added_partitions_take_part_in_round_robin(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    assert [partition for partition, _ in places(broker.publish("orders", batch(b"0", b"1", b"2")))] == [0, 1, 0]
    broker.alter_topic("orders", partitions=4)
    receipts = broker.publish("orders", batch(b"3", b"4", b"5", b"6"))
    assert [partition for partition, _ in places(receipts)] == [3, 0, 1, 2]


def test_added_partitions_belong_to_the_members_of_existing_groups(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    broker.register_group("orders", "fixed", consumers=2)
    broker.join_group("orders", "open", "ann")
    broker.alter_topic("orders", partitions=5)
    assert broker.describe_group("orders", "fixed").members == {"0": [0, 2, 4], "1": [1, 3]}
    assert broker.heartbeat("orders", "open", "ann").partitions == [0, 1, 2, 3, 4]
    broker.publish("orders", batch(b"a", partition=4))
    broker.commit_offsets("orders", "fixed", {4: 1}, member=0)
    assert broker.describe_group("orders", "fixed").progress[4].position == 1


def test_a_reader_that_waits_on_a_partition_continues_waiting_when_others_are_added(broker: Broker) -> None:
    broker.create_topic("orders")
    waiting = Background(lambda: broker.fetch("orders", 0, 0, wait_seconds=60))
    until_waiting(broker, "orders")
    broker.alter_topic("orders", partitions=2)
    broker.publish("orders", batch(b"other", partition=1))
    assert not waiting.is_done
    broker.publish("orders", batch(b"mine", partition=0))
    assert values_of(waiting.result()) == [b"mine"]


def test_a_partition_that_is_not_there_yet_cannot_be_waited_for(broker: Broker) -> None:
    broker.create_topic("orders")
    with pytest.raises(PartitionNotFound) as caught:
        broker.fetch("orders", 1, 0, wait_seconds=60)
    assert (caught.value.topic, caught.value.partition, caught.value.partitions) == ("orders", 1, 1)


# Deleting


def test_a_topic_is_deleted_with_its_messages_and_groups(broker: Broker) -> None:
    first = broker.create_topic("orders")
    broker.publish("orders", batch(b"a", producer_id="p", seqno=5))
    broker.register_group("orders", "readers", consumers=1)
    broker.commit_offsets("orders", "readers", {0: 1})
    broker.delete_topic("orders")
    assert broker.list_topics() == []
    for use in (
        lambda: broker.describe_topic("orders"),
        lambda: broker.publish("orders", batch(b"a")),
        lambda: broker.delete_topic("orders"),
    ):
        with pytest.raises(TopicNotFound, match="'orders' does not exist"):
            use()
    second = broker.create_topic("orders")
    assert second.id != first.id
    assert (second.offsets, second.groups) == ({0: (0, 0)}, [])
    assert broker.last_seqno("orders", "p") is None


def test_deleting_ends_readers_that_wait(broker: Broker) -> None:
    broker.create_topic("Orders")
    waiting = [Background(lambda: broker.fetch("orders", 0, 0, wait_seconds=60)) for _ in range(3)]
    until_waiting(broker, "orders", readers=3)
    broker.delete_topic("orders")
    for reader in waiting:
        with pytest.raises(TopicDeleted, match="topic 'Orders' was deleted"):
            reader.result()


def test_deleting_frees_the_disk(disk_site: Site) -> None:
    broker = disk_site.open()
    broker.create_topic("orders", partitions=2)
    broker.create_topic("kept")
    for _ in range(10):
        broker.publish("orders", batch(b"a" * 1000, b"b"))
    staged = broker.stage("orders", batch(b"c" * 1000))
    broker.fetch("orders", 0, 0)
    topic_id = broker.describe_topic("orders").id
    assert broker.describe_topic("orders").bytes_stored > 10_000
    broker.delete_topic("orders")
    left = [path for path in disk_site.directory.rglob("*") if f"{topic_id:09d}" in str(path)]
    assert left == []
    assert list((disk_site.directory / "stages").iterdir()) == []
    broker.create_topic("orders")
    assert broker.drop_stages("orders", [staged.stage]) == 0
    assert disk_site.reopen(broker).list_topics() == ["kept", "orders"]


def test_a_topic_that_the_catalog_keeps_can_be_deleted_again(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders")
    catalog = broker.store.catalog
    remove = catalog.remove_topic
    failing = threading.Event()
    failing.set()

    def remove_topic(topic_id: int) -> bool:
        if failing.is_set():
            raise StoreUnavailable("catalog", "the disk is full")
        return remove(topic_id)

    catalog.remove_topic = remove_topic  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        broker.delete_topic("orders")
    assert broker.list_topics() == ["orders"]
    if site.engine.is_shared:
        # The other servers never heard of it.
        broker.publish("orders", batch(b"a"))
    else:
        with pytest.raises(TopicDeleted):
            broker.publish("orders", batch(b"a"))
    failing.clear()
    broker.delete_topic("orders")
    assert broker.list_topics() == []
    broker.create_topic("orders")


def test_a_deleted_topic_stays_deleted_after_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders")
    broker.publish("orders", batch(b"a"))
    broker.delete_topic("orders")
    assert durable_site.reopen(broker).list_topics() == []


def test_a_store_holds_a_bounded_number_of_topics(site: Site) -> None:
    broker = site.open(topics_max=2)
    broker.create_topic("a")
    broker.create_topic("b")
    with pytest.raises(QuotaExceeded, match="there are 2 topics") as refused:
        broker.create_topic("c")
    assert not refused.value.retry
    assert broker.create_topic("a").name == "a"
    broker.delete_topic("a")
    broker.create_topic("c")


def test_a_store_holds_a_bounded_number_of_partitions(site: Site) -> None:
    broker = site.open(partitions_max=5)
    broker.create_topic("a", partitions=3)
    with pytest.raises(QuotaExceeded, match="partitions of all topics"):
        broker.create_topic("b", partitions=3)
    broker.create_topic("b", partitions=2)
    with pytest.raises(QuotaExceeded):
        broker.alter_topic("a", partitions=4)
    with pytest.raises(QuotaExceeded):
        broker.create_topic("a", partitions=4)
    assert broker.describe_topic("a").partitions == 3
    # What changes nothing of their number is free.
    broker.alter_topic("a", retention_seconds=60)
    broker.delete_topic("b")
    broker.alter_topic("a", partitions=5)


def test_the_number_of_topics_has_a_hard_bound() -> None:
    with pytest.raises(InvalidInput, match="topics_max"):
        BrokerSettings(topics_max=100_001)


def test_many_topics_are_described_at_once(broker: Broker) -> None:
    for name, partitions in (("Orders", 2), ("payments", 1)):
        broker.create_topic(name, partitions=partitions)
    found = broker.describe_topics(["payments", "orders", "missing"])
    assert found == [broker.describe_topic("payments"), broker.describe_topic("Orders")]
    assert broker.describe_topics([]) == []

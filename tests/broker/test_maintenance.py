"""Upkeep: every chore with its counter, at its interval, and never stopped by a topic or a task that fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.broker import Broker, BrokerSettings
from headrace.broker.counters import Counters
from headrace.broker.maintenance import Maintenance
from headrace.core.errors import (
    InvalidInput,
    LogFailed,
    MemberNotFound,
    MessagesHeld,
    OffsetOutOfRange,
    PartitionNotFound,
    StageNotFound,
)
from tests.broker.background import PATIENCE_SECONDS, eventually, open_gated
from tests.broker.clock import SettableClock
from tests.broker.messages import batch, content, statuses
from tests.broker.sites import Site

DAY_SECONDS = 24 * 3600


# Retention


def test_messages_past_their_age_are_dropped(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", partitions=2, retention_seconds=60)
    broker.create_topic("kept")
    for topic in ("orders", "kept"):
        broker.publish(topic, batch(b"old", b"old"))
    clock.step(61)
    broker.publish("orders", batch(b"new", b"new"))
    broker.maintenance.run_all()
    clock.step(61)
    broker.maintenance.run_all()
    assert broker.offsets("orders") == {0: (2, 2), 1: (2, 2)}
    assert broker.counters["segments_dropped"] > 0
    assert content(broker, "kept") == {0: [b"old", b"old"]}
    # Offsets are never used again.
    assert broker.publish("orders", batch(b"next")).offset.tolist() == [2]


def test_a_topic_is_trimmed_once(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", partitions=2)
    broker.publish("orders", batch(b"old", b"old"))
    clock.step(100)
    begun_us = clock.now_us()
    broker.publish("orders", batch(b"new", b"new"))
    clock.step(1)
    # Whole segments: the old messages may be in one with the new ones.
    assert broker.trim_topic("orders", begun_us) in (0, 2)
    assert [end for _, end in broker.offsets("orders").values()] == [2, 2]
    left = sum(end - start for start, end in broker.offsets("orders").values())
    assert broker.trim_topic("orders", clock.now_us()) == left
    assert broker.offsets("orders") == {0: (2, 2), 1: (2, 2)}
    assert broker.describe_topic("orders").settings.retention_seconds is None, "it stays as it was"
    with pytest.raises(InvalidInput, match="before_us"):
        broker.trim_topic("orders", -1)


def test_trimming_leaves_what_an_important_group_has_not_read(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders")
    broker.register_group("orders", "billing", important=True)
    broker.publish("orders", batch(b"a", b"b"))
    clock.step(1)
    assert broker.trim_topic("orders", clock.now_us()) == 0
    broker.commit_offsets("orders", "billing", {0: 2})
    assert broker.trim_topic("orders", clock.now_us()) == 2


def test_messages_below_an_offset_are_deleted(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", partitions=2)
    broker.register_group("orders", "slow")
    broker.publish("orders", batch(b"a", b"a", b"b", b"b", b"c", b"c"))
    assert broker.delete_messages("Orders", {0: 2}) == {0: 2}
    assert broker.delete_messages("orders", {0: 1, 1: 3}) == {0: 2, 1: 3}, "a start never falls"
    assert content(broker, "orders") == {0: [b"c"], 1: []}
    with pytest.raises(OffsetOutOfRange):
        broker.fetch("orders", 0, 1)
    assert sum(each.lag_messages for each in broker.describe_group("orders", "slow").progress.values()) == 1
    clock.step(1)
    broker.maintenance.run_all()
    assert broker.offsets("orders") == {0: (2, 3), 1: (3, 3)}
    for wrong, error in (({0: 4}, OffsetOutOfRange), ({0: -1}, OffsetOutOfRange), ({2: 0}, PartitionNotFound)):
        with pytest.raises(error):
            broker.delete_messages("orders", wrong)
    with pytest.raises(InvalidInput, match="before"):
        broker.delete_messages("orders", [3])  # type: ignore[arg-type]
    assert broker.publish("orders", batch(b"d", b"d")).offset.tolist() == [3, 3]


def test_messages_that_an_important_group_has_not_read_are_not_deleted(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.register_group("orders", "billing", important=True)
    broker.publish("orders", batch(b"a", b"b"))
    with pytest.raises(MessagesHeld, match="'billing' has read up to offset 0 only"):
        broker.delete_messages("orders", {0: 1})
    assert broker.delete_messages("orders", {0: 0}) == {0: 0}
    broker.commit_offsets("orders", "billing", {0: 1})
    assert broker.delete_messages("orders", {0: 1}) == {0: 1}
    broker.seek("orders", "billing", {0: 0})
    assert broker.describe_group("orders", "billing").progress[0].position == 1, "what is deleted does not come back"


def test_the_oldest_messages_are_dropped_while_there_are_too_many_bytes(broker: Broker) -> None:
    broker.create_topic("orders", retention_bytes=20_000)
    for number in range(40):
        broker.publish("orders", batch(b"%02d" % number * 500))
    broker.maintenance.run_all()
    start, end = broker.offsets("orders")[0]
    assert 0 < start < end == 40
    assert broker.describe_topic("orders").bytes_stored >= 20_000
    assert len(content(broker, "orders")[0]) == end - start


def test_what_was_dropped_stays_dropped_after_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", retention_seconds=60)
    for _ in range(8):
        broker.publish("orders", batch(b"old", producer_id="p", seqno=broker.offsets("orders")[0][1]))
    durable_site.clock.step(100)
    broker.maintenance.run_all()
    assert broker.offsets("orders") == {0: (8, 8)}
    broker = durable_site.reopen(broker)
    assert broker.offsets("orders") == {0: (8, 8)}
    # What the dropped messages said of their source is still known.
    assert broker.last_seqno("orders", "p") == 7
    assert statuses(broker.publish("orders", batch(b"old", b"y", producer_id="p", seqno=[7, 8]))) == [
        "duplicate",
        "written",
    ]


def test_complete_segments_are_sealed_and_counted(disk_site: Site) -> None:
    broker = disk_site.open()
    broker.create_topic("orders")
    for _ in range(10):
        broker.publish("orders", batch(b"a"))
    broker.maintenance.run_all()
    assert broker.counters["segments_sealed"] == 3
    broker.maintenance.run_all()
    assert broker.counters["segments_sealed"] == 3


# Forgetting


def test_links_of_idle_sources_are_forgotten_and_counted(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", partitions=2)
    broker.publish("orders", batch(b"a", b"b", producer_id=["p", "q"]))
    clock.step(13 * DAY_SECONDS)
    broker.publish("orders", batch(b"c", producer_id="q", key=b"k"))
    clock.step(2 * DAY_SECONDS)
    broker.maintenance.run_all()
    assert broker.counters["links_expired"] == 1
    clock.step(13 * DAY_SECONDS)
    broker.maintenance.run_all()
    assert broker.counters["links_expired"] == 2
    assert broker.counters["sources_forgotten"] == 0


def test_above_the_limit_the_sources_idle_longest_are_forgotten(site: Site) -> None:
    broker = site.open(sources_max=2)
    broker.create_topic("orders")
    for number in range(4):
        site.clock.step(1)
        broker.publish("orders", batch(b"a", producer_id=f"p{number}", seqno=number))
    broker.maintenance.run_all()
    # As long as they have their links they are needed.
    assert broker.counters["sources_forgotten"] == 0
    site.clock.step(15 * DAY_SECONDS)
    broker.maintenance.run_all()
    assert (broker.counters["links_expired"], broker.counters["sources_forgotten"]) == (4, 2)
    assert [broker.last_seqno("orders", f"p{number}") for number in range(4)] == [None, None, 2, 3]


def test_each_expiry_counts_for_itself(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", deduplication="payload", deduplication_window_seconds=10)
    broker.publish("orders", batch(b"a"))
    broker.join_group("orders", "readers", "ann", session_timeout_seconds=10)
    staged = broker.stage("orders", batch(b"b"))
    broker.maintenance.run_all()
    quiet = broker.counters.snapshot()
    clock.step(3600)
    broker.maintenance.run_all()
    after = broker.counters.snapshot()
    assert {name: after[name] - quiet.get(name, 0) for name in after if after[name] != quiet.get(name, 0)} == {
        "members_expired": 1,
        "payloads_cleaned": 1,
        "stages_expired": 1,
        "window_cleanings": 1,
    }
    with pytest.raises(MemberNotFound):
        broker.heartbeat("orders", "readers", "ann")
    with pytest.raises(StageNotFound):
        broker.publish_staged("orders", [staged])


# What fails


def test_a_topic_that_fails_does_not_keep_the_others_from_upkeep(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    broker, store = open_gated(site)
    for name in ("failed", "fine"):
        broker.create_topic(name, deduplication="payload", deduplication_window_seconds=1)
        broker.publish(name, batch(b"a"))
    site.clock.step(10)
    failed = broker.topics.find("failed").topic
    commit = failed.log.commit

    def fail(decide: object, store_wide: bool = False) -> None:
        raise LogFailed("failed", "a sync failed")

    failed.log.commit = fail  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR, logger="headrace.broker.maintenance_tasks"):
        broker.maintenance.run_all()
    assert "maintenance of topic 'failed' failed" in caplog.text
    assert broker.counters["payloads_cleaned"] == 1
    failed.log.commit = commit  # type: ignore[method-assign]
    assert store.gate.is_set()


def test_a_topic_that_ends_during_upkeep_is_no_failure(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.create_topic("ending", retention_seconds=1)
    broker.create_topic("fine", deduplication="payload")
    ending = broker.topics.find("ending")
    broker.delete_topic("ending")
    # As a chore finds it that began before.
    broker._topics._topics = {"ending": ending, **broker._topics._topics}
    broker.publish("fine", batch(b"a"))
    with caplog.at_level(logging.DEBUG, logger="headrace.broker"):
        broker.maintenance.run_all()
    assert caplog.text == ""
    broker._topics._topics = {name: topic for name, topic in broker._topics._topics.items() if name != "ending"}


def test_a_task_that_fails_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    attempts, others = threading.Semaphore(0), threading.Semaphore(0)

    def failing() -> None:
        attempts.release()
        raise RuntimeError("a bug")

    maintenance = Maintenance({failing: 0.001, others.release: 0.001})
    with caplog.at_level(logging.ERROR, logger="headrace.broker.maintenance"):
        maintenance.start()
        for _ in range(3):
            assert attempts.acquire(timeout=PATIENCE_SECONDS)
            assert others.acquire(timeout=PATIENCE_SECONDS)
        maintenance.close()
    assert "maintenance task failing failed" in caplog.text


def test_each_task_has_its_own_interval() -> None:
    often, seldom = threading.Semaphore(0), threading.Semaphore(0)
    maintenance = Maintenance({often.release: 0.001, seldom.release: 1000.0})
    maintenance.start()
    for _ in range(3):
        assert often.acquire(timeout=PATIENCE_SECONDS)
    maintenance.close()
    assert not seldom.acquire(blocking=False)


def test_an_opened_broker_keeps_itself_up(site: Site) -> None:
    settings = BrokerSettings(
        members_check_seconds=0.001,
        retention_check_seconds=0.001,
        window_clean_seconds=0.001,
        stages_check_seconds=0.001,
        sources_check_seconds=0.001,
    )
    with Broker.open(site.url, settings, site.clock) as broker:
        broker.create_topic("orders", deduplication="payload", retention_seconds=1)
        broker.publish("orders", batch(b"a", producer_id="p"))
        broker.stage("orders", batch(b"b"))
        broker.join_group("orders", "readers", "ann")
        site.clock.step(15 * DAY_SECONDS)
        chores = ("members_expired", "segments_dropped", "payloads_cleaned", "stages_expired", "links_expired")
        for counter in chores:
            eventually(lambda counter=counter: broker.counters[counter] == 1)  # type: ignore[misc]
        assert broker.describe_group("orders", "readers").members == {}


def test_members_are_looked_at_every_second_and_windows_every_minute_by_default() -> None:
    settings = BrokerSettings()
    assert (settings.members_check_seconds, settings.window_clean_seconds) == (1.0, 60.0)


# Retention against readers and groups


def test_a_reader_that_meets_retention_gets_the_valid_range(durable_site: Site, tmp_path: Path) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", retention_seconds=1)
    for _ in range(9):
        broker.publish("orders", batch(b"old"))
    log = broker.topics.find("orders").topic.log
    asked: list[Callable[[], object]] = [lambda: log.first_at(0, 0), lambda: log.time_of(0, 0)]
    durable_site.clock.step(100)
    broker.publish("orders", batch(b"new"))
    broker.maintenance.run_all()
    start, _ = broker.offsets("orders")[0]
    assert start >= 9
    assert [ask() for ask in asked] == [start, None]


def test_counters_are_read_all_at_once() -> None:
    counters = Counters()
    counters.add("b")
    counters.add("a", 2)
    counters.add("nothing", 0)
    counters.add_all({"b": 4, "c": 1})
    assert counters.snapshot() == {"a": 2, "b": 5, "c": 1}
    assert (counters["b"], counters["unknown"]) == (5, 0)

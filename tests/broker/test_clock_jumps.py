"""A clock that jumps: what it may decide, and what it may not."""

from __future__ import annotations

import logging

import pytest

from headrace.broker import Broker
from tests.broker.clock import SettableClock
from tests.broker.messages import batch, everything, statuses
from tests.broker.sites import Site

DAY_SECONDS = 24 * 3600
HOUR_SECONDS = 3600


def test_dead_member_loses_its_partition_in_time_although_the_clock_went_back(
    broker: Broker, clock: SettableClock
) -> None:
    broker.create_topic("orders", partitions=2)
    broker.join_group("orders", "g", "dead", session_timeout_seconds=10)
    broker.join_group("orders", "g", "live", session_timeout_seconds=600)
    clock.jump(-HOUR_SECONDS)
    clock.step(11)
    broker.maintenance.run_all()
    assert broker.heartbeat("orders", "g", "live").partitions == [0, 1]


def test_living_member_stays_in_although_the_clock_went_ahead(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders")
    joined = broker.join_group("orders", "g", "ann", session_timeout_seconds=10)
    clock.jump(DAY_SECONDS)
    broker.maintenance.run_all()
    assert broker.heartbeat("orders", "g", "ann").generation == joined.generation
    broker.commit_offsets("orders", "g", {0: 0}, "ann", joined.generation)


def test_reader_stays_in_whatever_the_time_of_day_does(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders")
    broker.join_group("orders", "g", "ann", session_timeout_seconds=10)
    reader = broker.reader("orders")
    for seconds in (-HOUR_SECONDS, 2 * HOUR_SECONDS):
        clock.jump(seconds)
        clock.step(6)
        reader.read_as_member("g", "ann", None, {}, 1, 1)
        broker.maintenance.run_all()
    assert broker.heartbeat("orders", "g", "ann").partitions == [0]


def test_payload_written_after_a_clock_was_ahead_is_forgotten_when_its_window_is_over(
    broker: Broker, clock: SettableClock
) -> None:
    broker.create_topic("orders", deduplication="payload", deduplication_window_seconds=60)
    clock.step(1)
    clock.jump(DAY_SECONDS)
    broker.publish("orders", batch(b"ahead"))
    clock.jump(-DAY_SECONDS)
    assert statuses(broker.publish("orders", batch(b"later"))) == ["written"]
    clock.step(59)
    assert statuses(broker.publish("orders", batch(b"later"))) == ["duplicate"]
    clock.step(2)
    assert statuses(broker.publish("orders", batch(b"later"))) == ["written"]


def test_payload_written_while_a_clock_was_ahead_is_forgotten_a_window_after_that_was_seen(
    broker: Broker, clock: SettableClock
) -> None:
    broker.create_topic("orders", deduplication="payload", deduplication_window_seconds=60)
    clock.jump(DAY_SECONDS)
    broker.publish("orders", batch(b"ahead"))
    clock.jump(-DAY_SECONDS)
    broker.maintenance.run_all()
    clock.step(59)
    assert statuses(broker.publish("orders", batch(b"ahead"))) == ["duplicate"]
    clock.step(2)
    assert statuses(broker.publish("orders", batch(b"ahead"))) == ["written"]


def test_window_holds_over_a_restart_after_a_clock_was_ahead(durable_site: Site) -> None:
    broker, clock = durable_site.open(), durable_site.clock
    broker.create_topic("orders", deduplication="payload", deduplication_window_seconds=60)
    clock.jump(DAY_SECONDS)
    broker.publish("orders", batch(b"ahead"))
    clock.jump(-DAY_SECONDS)
    broker.publish("orders", batch(b"later"))
    clock.step(30)
    broker = durable_site.reopen(broker)
    broker.maintenance.run_all()
    assert statuses(broker.publish("orders", batch(b"later", b"ahead"))) == ["duplicate", "duplicate"]
    clock.step(61)
    assert statuses(broker.publish("orders", batch(b"later", b"ahead"))) == ["written", "written"]


def test_many_commits_with_broker_time_ahead_forget_no_payload_early(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", deduplication="payload", deduplication_window_seconds=60)
    clock.jump(DAY_SECONDS)
    broker.publish("orders", batch(b"ahead"))
    clock.jump(-DAY_SECONDS)
    for number in range(300):
        broker.publish("orders", batch(b"%d" % number))
    assert statuses(broker.publish("orders", batch(b"0", b"299"))) == ["duplicate", "duplicate"]


def test_retention_drops_what_was_written_after_a_clock_was_ahead(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", retention_seconds=60)
    clock.jump(DAY_SECONDS)
    broker.publish("orders", batch(b"ahead"))
    clock.jump(-DAY_SECONDS)
    for number in range(5):
        clock.step(1)
        broker.publish("orders", batch(b"%d" % number))
    broker.maintenance.run_all()
    clock.step(30)
    broker.maintenance.run_all()
    assert len(everything(broker, "orders")) == 6, "nothing goes before its time"
    clock.step(31)
    broker.maintenance.run_all()
    assert everything(broker, "orders") == []


def test_a_jump_is_logged_and_counted(broker: Broker, clock: SettableClock, caplog: pytest.LogCaptureFixture) -> None:
    clock.step(100)
    broker.maintenance.run_all()
    assert broker.counters["clock_jumps"] == 0
    with caplog.at_level(logging.WARNING):
        clock.jump(-HOUR_SECONDS)
        broker.maintenance.run_all()
        clock.jump(HOUR_SECONDS)
        broker.maintenance.run_all()
        clock.jump(1.0)
        broker.maintenance.run_all()
    assert broker.counters["clock_jumps"] == 2
    assert "3600.0 seconds back" in caplog.text and "3600.0 seconds ahead" in caplog.text

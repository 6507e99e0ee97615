"""Deduplication by payload: the window, its bound, its scope, and what survives."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from headrace.broker import Broker
from tests.broker.background import together
from tests.broker.clock import SettableClock
from tests.broker.messages import batch, content, everything, numbered, statuses
from tests.broker.sites import Site


def test_a_value_seen_in_the_window_is_a_duplicate_from_any_producer(broker: Broker) -> None:
    broker.create_topic("orders", deduplication="payload", partitions=3)
    assert statuses(broker.publish("orders", batch(b"a", b"b", b"a"))) == ["written", "written", "duplicate"]
    assert statuses(broker.publish("orders", batch(b"b", b"c", key=b"other", producer_id="p"))) == [
        "duplicate",
        "written",
    ]
    assert everything(broker, "orders") == [b"a", b"b", b"c"]
    assert broker.counters["duplicates_by_payload"] == 2


def test_sources_count_in_payload_mode_too(broker: Broker) -> None:
    broker.create_topic("orders", deduplication="payload")
    broker.publish("orders", numbered(b"a"))
    assert statuses(broker.publish("orders", numbered(b"b"))) == ["conflict"]
    # What was dropped for its seqno was not written, so its value is not known.
    assert statuses(broker.publish("orders", batch(b"b"))) == ["written"]


def test_a_value_is_forgotten_when_its_window_is_over(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", deduplication="payload")
    clock.step(1)
    broker.publish("orders", batch(b"a"))
    clock.step(30 * 60 - 1)
    assert statuses(broker.publish("orders", batch(b"a"))) == ["duplicate"]
    clock.step(1)
    assert statuses(broker.publish("orders", batch(b"a"))) == ["written"]


def test_a_duplicate_does_not_renew_the_window(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", deduplication="payload", deduplication_window_seconds=10)
    clock.step(1)
    broker.publish("orders", batch(b"a"))
    clock.step(9)
    assert statuses(broker.publish("orders", batch(b"a"))) == ["duplicate"]
    clock.step(2)
    assert statuses(broker.publish("orders", batch(b"a"))) == ["written"]


def test_cleaning_forgets_what_is_over_and_nothing_else(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("orders", deduplication="payload", deduplication_window_seconds=10)
    broker.create_topic("plain")
    broker.publish("orders", batch(b"a", b"b"))
    clock.step(6)
    broker.publish("orders", batch(b"c"))
    clock.step(5)
    broker.maintenance.run_all()
    assert broker.counters["payloads_cleaned"] == 2
    assert broker.counters["window_cleanings"] == 1
    assert statuses(broker.publish("orders", batch(b"a", b"b", b"c"))) == ["written", "written", "duplicate"]


def test_the_window_survives_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", deduplication="payload", deduplication_window_seconds=10)
    durable_site.clock.step(1)
    for number in range(5):
        broker.publish("orders", batch(b"%d" % number))
        durable_site.clock.step(2)
    broker = durable_site.reopen(broker)
    assert statuses(broker.publish("orders", batch(*[b"%d" % n for n in range(5)]))) == ["written"] + ["duplicate"] * 4


def test_the_window_survives_a_crash(durable_site: Site, tmp_path: Path) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", deduplication="payload", deduplication_window_seconds=10)
    durable_site.clock.step(1)
    for number in range(5):
        broker.publish("orders", batch(b"%d" % number))
        durable_site.clock.step(2)
    after = durable_site.crashed(tmp_path / "after")
    sent = after.open().publish("orders", batch(*[b"%d" % n for n in range(5)]))
    assert statuses(sent) == ["written"] + ["duplicate"] * 4
    after.close()


def test_the_window_is_bounded_and_what_it_forgets_early_is_counted(broker: Broker) -> None:
    broker.create_topic("orders", deduplication="payload", deduplication_window_messages=20)
    for number in range(0, 30, 10):
        broker.publish("orders", batch(*[b"%d" % n for n in range(number, number + 10)]))
    # Ten too many, and a tenth of the bound with them, so that a full window is not sorted at every commit.
    assert broker.counters["payloads_forgotten_early"] == 12
    sent = statuses(broker.publish("orders", batch(*[b"%d" % n for n in range(30)])))
    assert [sent[start : start + 10].count("written") for start in (0, 10, 20)] == [10, 2, 0]


def test_a_window_is_of_its_own_topic(broker: Broker) -> None:
    broker.create_topic("a", deduplication="payload")
    broker.create_topic("b", deduplication="payload")
    assert statuses(broker.publish("a", batch(b"x"))) == ["written"]
    assert statuses(broker.publish("b", batch(b"x"))) == ["written"]


def test_topics_that_say_so_share_one_window(broker: Broker) -> None:
    for name in ("a", "b"):
        broker.create_topic(name, deduplication="payload", deduplication_scope="store")
    broker.create_topic("own", deduplication="payload")
    broker.create_topic("plain", deduplication_scope="store")
    assert statuses(broker.publish("a", batch(b"x", b"y"))) == ["written"] * 2
    assert statuses(broker.publish("b", batch(b"x", b"z"))) == ["duplicate", "written"]
    assert statuses(broker.publish("a", batch(b"z"))) == ["duplicate"]
    assert statuses(broker.publish("own", batch(b"x"))) == ["written"]
    assert statuses(broker.publish("plain", batch(b"x"))) == ["written"]
    broker.delete_topic("a")
    assert statuses(broker.publish("b", batch(b"x"))) == ["written"]


def test_a_topic_may_join_and_leave_the_shared_window(broker: Broker) -> None:
    broker.create_topic("a", deduplication="payload", deduplication_scope="store")
    broker.create_topic("b", deduplication="payload")
    broker.publish("a", batch(b"x"))
    assert statuses(broker.publish("b", batch(b"x"))) == ["written"]
    broker.publish("a", batch(b"y"))
    broker.alter_topic("b", deduplication_scope="store")
    assert statuses(broker.publish("b", batch(b"y"))) == ["duplicate"]
    broker.alter_topic("b", deduplication="off")
    assert statuses(broker.publish("b", batch(b"y", b"y"))) == ["written"] * 2


def test_the_shared_window_survives_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    for name in ("a", "b"):
        broker.create_topic(name, deduplication="payload", deduplication_scope="store")
    broker.publish("a", batch(b"x"))
    broker = durable_site.reopen(broker)
    assert statuses(broker.publish("b", batch(b"x", b"y"))) == ["duplicate", "written"]


def test_threads_that_send_the_same_payloads_to_two_topics_of_one_window_write_each_once(broker: Broker) -> None:
    for name in ("a", "b"):
        broker.create_topic(name, deduplication="payload", deduplication_scope="store", partitions=2)

    def publish(topic: str) -> int:
        return sum(broker.publish(topic, batch(b"%d" % n, b"%d" % (n + 1))).written for n in range(60))

    written = together([partial(publish, topic) for topic in "abababab"])
    assert sum(written) == 61
    assert sorted(everything(broker, "a") + everything(broker, "b"), key=int) == [b"%d" % n for n in range(61)]


@pytest.mark.parametrize("value", [b"", b"a" * 100_000])
def test_any_value_has_a_payload(broker: Broker, value: bytes) -> None:
    broker.create_topic("orders", deduplication="payload")
    assert statuses(broker.publish("orders", batch(value, value))) == ["written", "duplicate"]
    assert content(broker, "orders") == {0: [value]}

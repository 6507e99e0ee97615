"""Servers that share a database go by its clock, whatever the time of day is on their machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from headrace.broker import Broker
from headrace.broker.clock import DatabaseClock, SystemClock
from headrace.core.limits import CLOCK_COMPARE_SECONDS_MAX, MICROSECONDS
from headrace.storage.open import open_store
from tests.broker.clock import SettableClock
from tests.broker.messages import batch, statuses
from tests.postgres_server import PostgresServer

HOUR_SECONDS = 3600


class WrongClock(SystemClock):
    """The clock of a machine whose time of day is wrong."""

    def __init__(self, ahead_seconds: int) -> None:
        self._ahead_us = ahead_seconds * MICROSECONDS

    def now_us(self) -> int:
        return super().now_us() + self._ahead_us


Open = Callable[[int], Broker]


@pytest.fixture
def opened(postgres: PostgresServer) -> Iterator[Open]:
    """Opens servers of one store, each on a machine whose clock is so many seconds ahead."""
    url = postgres.fresh_url("segment_commits=1")
    with ExitStack() as closing:

        def open_one(ahead_seconds: int) -> Broker:
            store = open_store(url)
            clock = DatabaseClock(WrongClock(ahead_seconds), store.catalog.database_us)
            return closing.enter_context(Broker(store, clock=clock))

        yield open_one


@pytest.mark.parametrize("seconds", [HOUR_SECONDS, -HOUR_SECONDS])
def test_a_payload_is_a_duplicate_through_a_server_whose_clock_is_wrong(opened: Open, seconds: int) -> None:
    right, wrong = opened(0), opened(seconds)
    right.create_topic("orders", deduplication="payload", deduplication_window_seconds=60)
    for number, (first, second) in enumerate([(right, wrong), (wrong, right)]):
        assert statuses(first.publish("orders", batch(b"%d" % number))) == ["written"]
        second.maintenance.run_all()
        assert statuses(second.publish("orders", batch(b"%d" % number))) == ["duplicate"]
        first.maintenance.run_all()
        assert statuses(first.publish("orders", batch(b"%d" % number))) == ["duplicate"]


@pytest.mark.parametrize("seconds", [HOUR_SECONDS, -HOUR_SECONDS])
def test_messages_are_dated_and_kept_by_one_clock(opened: Open, seconds: int) -> None:
    right, wrong = opened(0), opened(seconds)
    right.create_topic("orders", retention_seconds=600)
    for broker in (right, wrong):
        broker.publish("orders", batch(b"a"))
        for each in (right, wrong):
            each.maintenance.run_all()
    rows = right.fetch("orders", 0, 0)
    now_us = right.store.catalog.database_us()
    times = [int(each.value) for each in rows.column("timestamp")]
    assert rows.num_rows == 2 and times == sorted(times)
    assert all(abs(now_us - time_us) < HOUR_SECONDS // 2 * MICROSECONDS for time_us in times)


def test_without_a_clock_of_its_own_a_broker_takes_that_of_its_database(postgres: PostgresServer) -> None:
    store = open_store(postgres.fresh_url())
    with Broker(store) as broker:
        compared = [task for task in broker.maintenance._tasks if getattr(task, "__self__", None) is broker._clock]
        assert isinstance(broker._clock, DatabaseClock) and compared == [broker._clock.compare]
    with Broker(open_store("memory:")) as broker:
        assert isinstance(broker._clock, SystemClock)


def test_an_answer_that_took_long_is_ignored() -> None:
    clock, answers = SettableClock(), [(0.0, 1000), (0.0, 2000), (CLOCK_COMPARE_SECONDS_MAX + 1, 3000), (0.5, 4000)]

    def database_us() -> int:
        seconds, answer = answers.pop(0)
        clock.step(seconds)
        return answer

    shared = DatabaseClock(clock, database_us)
    assert shared.now_us() == 1000
    clock.step(1)
    assert shared.now_us() == 1000 + MICROSECONDS
    shared.compare()
    assert shared.now_us() == 2000
    shared.compare()
    assert shared.now_us() == 2000 + round((CLOCK_COMPARE_SECONDS_MAX + 1) * MICROSECONDS)
    shared.compare()
    assert shared.now_us() == 4000 + MICROSECONDS // 4
    assert shared.monotonic_us() == clock.monotonic_us()

"""Sessions of members: kept by the server that hears them, over a restart, taken over from a server that is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from headrace.broker import Broker
from headrace.broker.cluster.announcements import group_notification
from headrace.core.errors import MemberNotFound, StoreUnavailable
from headrace.core.limits import SERVER_EXPIRY_SECONDS
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.broker.clock import SettableClock
from tests.broker.messages import batch
from tests.broker.sites import Site
from tests.postgres_server import PostgresServer

MEMBERS = [f"member-{number}" for number in range(100)]


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements of all catalogs."""
    found: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def rows_of(site: Site, postgres: PostgresServer) -> list[Any]:
    """Every version of a row of groups and their members: another place or transaction if it was written again."""
    schema = site.url.partition("schema=")[2].partition("&")[0]
    tables = ("all_groups", "all_members", "all_consumers")
    with postgres.connect() as connection:
        return [connection.execute(f"SELECT ctid, xmin FROM {schema}.{table}").fetchall() for table in tables]


def settled(broker: Broker) -> dict[str, Any]:
    """A group of many members, each of which did what it was asked."""
    broker.create_topic("orders", partitions=len(MEMBERS))
    for member in MEMBERS:
        broker.join_group("orders", "g", member)
    for _ in range(2):
        for member in MEMBERS:
            told = broker.heartbeat("orders", "g", member)
            broker.heartbeat("orders", "g", member, told.generation, told.partitions)
    return {member: broker.heartbeat("orders", "g", member) for member in MEMBERS}


def hear_all(broker: Broker) -> None:
    """Wait until a server of a shared store has heard what it announced itself: it is told in that order."""
    if (signals := broker.store.signals) is None:
        return
    broker.create_topic("last")
    announced = group_notification(broker.topics.find("last").record.id)
    # The first time it may be woken because it begins to listen.
    for _ in range(2):
        heard = threading.Event()
        with broker.reader("last").watching(heard.set):
            signals.announce(announced)
            assert heard.wait(PATIENCE_SECONDS)


# A heartbeat that changes nothing


def test_heartbeats_that_change_nothing_take_no_statement_and_keep_members_in(
    broker: Broker, clock: SettableClock
) -> None:
    told = settled(broker)
    hear_all(broker)
    assert sum(len(each.partitions) for each in told.values()) == len(MEMBERS)
    broker.heartbeat("orders", "g", MEMBERS[0])
    with statements() as found:
        for _ in range(4):
            clock.step(5)
            for member, membership in told.items():
                held = membership.generation, membership.partitions
                assert broker.heartbeat("orders", "g", member, *held) == membership
    assert found == []
    clock.step(29)
    broker.maintenance.run_all()
    assert broker.counters["members_expired"] == 0


def test_a_hundred_members_write_no_row_while_nothing_changes(shared_site: Site, postgres: PostgresServer) -> None:
    first, second = shared_site.open(), shared_site.open()
    settled(first)
    before = rows_of(shared_site, postgres)
    for _ in range(3):
        shared_site.clock.step(5)
        for member in MEMBERS:
            first.heartbeat("orders", "g", member)
        for each in (first, second):
            each.maintenance.run_all()
    assert rows_of(shared_site, postgres) == before
    second.heartbeat("orders", "g", MEMBERS[0])
    assert rows_of(shared_site, postgres) != before, "it is attached to another server"


# Restarts


def test_members_that_come_back_within_their_session_go_on_after_a_restart(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=2)
    broker.join_group("orders", "g", "ann", session_timeout_seconds=10)
    broker.join_group("orders", "g", "bob", session_timeout_seconds=10)
    told = broker.heartbeat("orders", "g", "ann")
    assert (told.partitions, told.revoking) == ([0], [1])
    broker = durable_site.reopen(broker)
    broker.maintenance.run_all()
    durable_site.clock.step(9)
    broker.maintenance.run_all()
    assert broker.heartbeat("orders", "g", "ann") == told
    assert broker.heartbeat("orders", "g", "ann", told.generation, [0]).revoking == []
    durable_site.clock.step(1)
    broker.maintenance.run_all()
    assert broker.describe_group("orders", "g").members == {"ann": [0, 1]}, "bob did not come back"
    assert broker.counters["members_expired"] == 1


def test_what_was_asked_back_before_a_restart_is_taken_in_time_after_it(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders", partitions=2)
    for member in ("ann", "bob"):
        broker.join_group("orders", "g", member, session_timeout_seconds=600, max_poll_seconds=60)
    broker = durable_site.reopen(broker)
    broker.maintenance.run_all()
    durable_site.clock.step(59)
    broker.maintenance.run_all()
    assert broker.describe_group("orders", "g").members == {"ann": [0, 1], "bob": []}
    durable_site.clock.step(1)
    broker.maintenance.run_all()
    assert broker.describe_group("orders", "g").members == {"ann": [0], "bob": [1]}


def test_a_deleted_group_leaves_no_members(durable_site: Site) -> None:
    broker = durable_site.open()
    broker.create_topic("orders")
    broker.join_group("orders", "g", "ann")
    broker.delete_group("orders", "g")
    broker.register_group("orders", "g")
    broker = durable_site.reopen(broker)
    assert broker.describe_group("orders", "g").members == {}


# Servers that share a store


@pytest.fixture
def two(shared_site: Site) -> tuple[Broker, Broker]:
    first, second = shared_site.open(), shared_site.open()
    first.create_topic("orders", partitions=2)
    first.join_group("orders", "g", "ann", session_timeout_seconds=10)
    second.join_group("orders", "g", "bob", session_timeout_seconds=100)

    def is_shared() -> bool:
        told = first.heartbeat("orders", "g", "ann")
        first.heartbeat("orders", "g", "ann", told.generation, told.partitions)
        return all(each.describe_group("orders", "g").members == {"ann": [0], "bob": [1]} for each in (first, second))

    # A server may hear late of what happened at the other.
    eventually(is_shared)
    for each in (first, second):
        each.maintenance.run_all()
    return first, second


def silence(site: Site, postgres: PostgresServer, broker: Broker) -> None:
    """The row of a server is not renewed any more, as if its process had been killed long ago."""
    schema = site.url.partition("schema=")[2].partition("&")[0]
    with postgres.connect() as connection:
        statement = f"UPDATE {schema}.all_servers SET heartbeat_us = 0 WHERE serverid = %s"
        assert connection.execute(statement, [broker.servers.id]).rowcount == 1


def test_members_are_found_silent_only_by_the_server_that_hears_them(
    two: tuple[Broker, Broker], shared_site: Site
) -> None:
    first, second = two
    shared_site.clock.step(20)
    second.maintenance.run_all()
    assert second.describe_group("orders", "g").members == {"ann": [0], "bob": [1]}
    first.maintenance.run_all()
    assert second.describe_group("orders", "g").members == {"bob": [0, 1]}
    with pytest.raises(MemberNotFound):
        first.heartbeat("orders", "g", "ann")


def test_a_member_that_went_to_another_server_is_not_missed_by_the_first(
    two: tuple[Broker, Broker], shared_site: Site
) -> None:
    first, second = two
    shared_site.clock.step(9)
    second.heartbeat("orders", "g", "ann")
    shared_site.clock.step(9)
    for each in two:
        each.maintenance.run_all()
    assert first.describe_group("orders", "g").members == {"ann": [0], "bob": [1]}
    shared_site.clock.step(1)
    first.maintenance.run_all()
    assert first.describe_group("orders", "g").members == {"ann": [0], "bob": [1]}
    second.maintenance.run_all()
    assert first.describe_group("orders", "g").members == {"bob": [0, 1]}


def test_members_of_a_server_that_is_gone_get_one_full_session(
    two: tuple[Broker, Broker], shared_site: Site, postgres: PostgresServer
) -> None:
    first, second = two
    first.join_group("orders", "g", "cem", session_timeout_seconds=10)
    silence(shared_site, postgres, first)
    second.maintenance.run_all()
    shared_site.clock.step(9)
    second.maintenance.run_all()
    assert set(second.describe_group("orders", "g").members) == {"ann", "bob", "cem"}
    second.heartbeat("orders", "g", "cem")
    shared_site.clock.step(1)
    second.maintenance.run_all()
    assert set(second.describe_group("orders", "g").members) == {"bob", "cem"}
    assert second.counters["members_expired"] == 1


def test_members_of_a_server_that_was_only_slow_are_left_to_it(
    two: tuple[Broker, Broker], shared_site: Site, postgres: PostgresServer
) -> None:
    first, second = two
    silence(shared_site, postgres, first)
    second.maintenance.run_all()
    first.servers.beat()
    first.heartbeat("orders", "g", "ann")
    shared_site.clock.step(9)
    first.heartbeat("orders", "g", "ann")
    shared_site.clock.step(1)
    second.maintenance.run_all()
    assert second.describe_group("orders", "g").members == {"ann": [0], "bob": [1]}
    assert second.counters["members_expired"] == 0


def test_a_server_that_is_cut_off_refuses_its_members_and_they_stay_members(
    two: tuple[Broker, Broker], shared_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = two

    def failed(*_: object) -> None:
        raise StoreUnavailable("the database", "gone")

    with monkeypatch.context() as cut:
        cut.setattr(first.store.catalog.servers, "put", failed)
        for _ in range(round(SERVER_EXPIRY_SECONDS) // 5 - 1):
            shared_site.clock.step(5)
            first.heartbeat("orders", "g", "ann")
        for _ in range(4):
            shared_site.clock.step(5)
            with pytest.raises(StoreUnavailable):
                first.heartbeat("orders", "g", "ann")
            with pytest.raises(StoreUnavailable):
                first.join_group("orders", "g", "dan")
    shared_site.clock.step(5)
    assert first.heartbeat("orders", "g", "ann").partitions == [0]
    first.maintenance.run_all()
    assert set(first.describe_group("orders", "g").members) == {"ann", "bob"}


def test_a_broker_without_an_address_hears_members_and_is_not_listed(two: tuple[Broker, Broker]) -> None:
    first, second = two
    assert first.list_servers() == []
    assert second.servers.running() == {first.servers.id, second.servers.id}
    first.close()
    assert second.servers.running() == {second.servers.id}


def test_a_member_that_another_server_let_in_or_moved_is_known_here(two: tuple[Broker, Broker]) -> None:
    first, second = two
    second.join_group("orders", "g", "cem")
    assert first.heartbeat("orders", "g", "cem").partitions == []
    second.publish("orders", batch(b"a", partition=0))
    second.seek("orders", "g", {0: 0})
    eventually(lambda: first.heartbeat("orders", "g", "ann").seek_generation > 0)

"""Groups whose members only one server knows: natives are refused there and at every other server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.broker.groups.groups import Groups
from headrace.broker.groups.outside_members import CLAIM_SECONDS, OutsideMembers
from headrace.core.errors import GroupSizeConflict
from tests.broker.sites import Site


def test_a_claim_is_used_or_given_up_some_seconds_later() -> None:
    now = 100.0
    members = OutsideMembers(lambda: now)
    members.claimed(["Orders", "bills"], "billing")
    assert members.unused_claims() == set()
    members.hold("billing", ["orders"], "Kafka")
    now += CLAIM_SECONDS
    assert members.unused_claims() == {("bills", "billing")}
    members.given_up({("bills", "billing"), ("never", "claimed")})
    assert members.unused_claims() == set()
    members.release("billing", ["orders"])
    assert members.unused_claims() == {("orders", "billing")}
    members.claimed(["orders"], "billing")
    assert members.unused_claims() == set()


def test_a_group_that_a_server_holds_takes_native_members_at_none(shared_site: Site) -> None:
    holder, other = shared_site.open(), shared_site.open()
    holder.servers.advertise({"kafka": "kafka://127.0.0.1:1"})
    for topic in ("orders", "bills"):
        holder.create_topic(topic, partitions=2)
    holder.claims.claim("billing", {"orders", "missing"}, "Kafka")
    holder.claims.outside.hold("billing", ["orders"], "Kafka")
    with pytest.raises(GroupSizeConflict, match=f"Kafka members, at server {holder.servers.id}"):
        other.join_group("orders", "billing", "m1")
    with pytest.raises(GroupSizeConflict, match="Kafka members in topic"):
        holder.join_group("orders", "billing", "m1")
    # Other groups, and the same group in other topics, are nobody's.
    other.join_group("orders", "audit", "m1")
    other.join_group("bills", "billing", "m1")
    with pytest.raises(GroupSizeConflict, match="native members in topic 'bills'"):
        holder.claims.claim("billing", {"bills"}, "Kafka")


def test_whoever_is_a_member_already_stays_one(shared_site: Site) -> None:
    holder, other = shared_site.open(), shared_site.open()
    holder.servers.advertise({"kafka": "kafka://127.0.0.1:1"})
    holder.create_topic("orders")
    other.join_group("orders", "billing", "m1")
    with pytest.raises(GroupSizeConflict, match="native members"):
        holder.claims.claim("billing", {"orders"}, "Kafka")
    other.join_group("orders", "billing", "m1")
    other.leave_group("orders", "billing", "m1")
    holder.claims.claim("billing", {"orders"}, "Kafka")
    with pytest.raises(GroupSizeConflict):
        other.join_group("orders", "billing", "m1")


def test_a_claim_ends_when_it_is_unused_or_its_server_stops(shared_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, other = shared_site.open(), shared_site.open()
    for broker in (holder, other):
        broker.servers.advertise({"kafka": "kafka://127.0.0.1:1"})
    holder.create_topic("orders")
    holder.create_topic("doomed")
    holder.claims.claim("billing", {"orders", "doomed"}, "Kafka")
    holder.delete_topic("doomed")
    holder.claims.release()
    with pytest.raises(GroupSizeConflict):
        other.join_group("orders", "billing", "m1")
    monkeypatch.setattr("headrace.broker.groups.outside_members.CLAIM_SECONDS", 0.0)
    holder.claims.release()
    holder.claims.release()
    other.join_group("orders", "billing", "m1")
    other.leave_group("orders", "billing", "m1")
    # The coordinator may move to another server, which takes the claim over.
    holder.claims.claim("billing", {"orders"}, "Kafka")
    other.claims.claim("billing", {"orders"}, "Kafka")
    with pytest.raises(GroupSizeConflict, match=other.servers.id):
        holder.join_group("orders", "billing", "m1")
    other.close()
    holder.join_group("orders", "billing", "m1")


def test_a_server_alone_claims_in_memory(disk_site: Site) -> None:
    broker = disk_site.open()
    broker.create_topic("orders")
    broker.claims.claim("billing", {"orders"}, "Kafka")
    broker.join_group("orders", "billing", "m1")
    with pytest.raises(GroupSizeConflict, match="native members in topic 'orders'"):
        broker.claims.claim("billing", {"orders"}, "Kafka")


def test_a_claim_in_use_is_not_given_up() -> None:
    now = 100.0
    members = OutsideMembers(lambda: now)
    with members.expected("billing", ["orders"], "Kafka"):
        members.claimed(["orders"], "billing")
        now += 2 * CLAIM_SECONDS
        assert members.unused_claims() == set()
    assert members.unused_claims() == {("orders", "billing")}


def test_native_members_are_refused_from_before_the_claim_until_the_group_is_held(site: Site) -> None:
    broker = site.open()
    broker.create_topic("orders")
    outside = broker.claims.outside
    with outside.expected("billing", ["orders"], "Kafka"), outside.expected("billing", ["orders"], "Kafka"):
        broker.claims.claim("billing", {"orders"}, "Kafka")
        with outside.expected("billing", ["orders"], "Kafka"):
            pass
        for join in JOINS.values():
            with pytest.raises(GroupSizeConflict, match="Kafka members in topic 'orders'"):
                join(broker)
        outside.hold("billing", ["orders"], "Kafka")
    with pytest.raises(GroupSizeConflict, match="Kafka members in topic 'orders'"):
        broker.join_group("orders", "billing", "m1")
    outside.release("billing", ["orders"])
    broker.join_group("orders", "billing", "m1")


JOINS: dict[str, Callable[[Broker], object]] = {
    "join": lambda broker: broker.join_group("orders", "billing", "m1"),
    "register": lambda broker: broker.register_group("orders", "billing", consumers=2),
}


@pytest.mark.parametrize("join", ["join", "register"])
def test_a_claim_waits_for_a_native_member_that_joins_at_the_same_time(
    site: Site, join: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member was let in, and is not stored yet: then the claim begins."""
    broker = site.open()
    broker.create_topic("orders")
    is_let_in, has_claimed = threading.Event(), threading.Event()
    refused: list[GroupSizeConflict] = []
    original: Any = getattr(Groups, join)

    def slow(*args: Any) -> Any:
        is_let_in.set()
        # Without a turn the claim ends here, and finds nobody.
        has_claimed.wait(0.3)
        return original(*args)

    def claim() -> None:
        is_let_in.wait()
        with broker.claims.outside.expected("billing", ["orders"], "Kafka"):
            try:
                broker.claims.claim("billing", {"orders"}, "Kafka")
            except GroupSizeConflict as error:
                refused.append(error)
        has_claimed.set()

    monkeypatch.setattr(Groups, join, slow)
    claiming = threading.Thread(target=claim)
    claiming.start()
    JOINS[join](broker)
    claiming.join()
    (error,) = refused
    assert "native members in topic 'orders'" in str(error)


def test_a_group_that_another_server_holds_gets_no_fixed_size(shared_site: Site) -> None:
    holder, other = shared_site.open(), shared_site.open()
    holder.servers.advertise({"kafka": "kafka://127.0.0.1:1"})
    holder.create_topic("orders")
    holder.claims.claim("billing", {"orders"}, "Kafka")
    with pytest.raises(GroupSizeConflict, match=f"Kafka members, at server {holder.servers.id}"):
        other.register_group("orders", "billing", consumers=2)
    other.register_group("orders", "billing", important=True)

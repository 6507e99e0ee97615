"""Groups whose members only one server knows: natives are refused there and at every other server."""

from __future__ import annotations

import pytest

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

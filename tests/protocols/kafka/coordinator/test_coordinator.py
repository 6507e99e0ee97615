"""Which group a member comes to, what groups may take, and what the coordinator writes to the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headrace.broker import Broker
from headrace.core.errors import QuotaExceeded
from headrace.core.rights import Caller, check_grants
from headrace.edge.access import Principal
from headrace.edge.bridge import Bridge
from headrace.protocols.kafka.coordinator.coordinator import Coordinator, shown_members
from headrace.protocols.kafka.coordinator.requests import GroupError, Join
from headrace.protocols.kafka.coordinator.roster import MEMBER_BYTES, GroupMemory


def test_members_in_the_log_are_quoted_and_few() -> None:
    assert shown_members({"b\nERROR all is lost", "a"}) == r"'a', 'b\nERROR all is lost'"
    many = shown_members([f"{number:03}" + "x" * 5000 for number in range(50)])
    assert len(many) < 3000 and many.endswith("and 30 others")


def principal(name: str, *topics: str) -> Principal:
    return Principal(Caller(name, check_grants([(topic, ["read"]) for topic in topics])), "127.0.0.1")


def asking(caller: Principal, *topics: str, member: str = "", metadata: bytes = b"") -> Join:
    protocols = {"range": metadata}
    return Join(member, None, "c", "h", 30.0, 30.0, "consumer", protocols, caller.caller, frozenset(topics))


async def with_coordinator(use: Callable[[Coordinator], None]) -> None:
    with Broker.open("memory:") as broker:
        bridge = Bridge(broker)
        coordinator = Coordinator(bridge, 0.0)
        try:
            use(coordinator)
        finally:
            coordinator.close()
            bridge.close()


def test_groups_of_one_caller_leave_room_for_those_of_others() -> None:
    ann, bob = principal("ann", "a"), principal("bob", "b")

    def use(coordinator: Coordinator) -> None:
        coordinator.memory = GroupMemory(12 * MEMBER_BYTES)
        groups = 0
        with pytest.raises(QuotaExceeded):
            for groups in range(100):
                coordinator.join(ann, f"g{groups}", asking(ann, "a", metadata=bytes(4_000)), False)
        assert groups == 2 and len(coordinator.groups()) == 2
        # Ids that nobody comes back with count too.
        with pytest.raises(GroupError, match="member_id_required"):
            coordinator.join(ann, "another", asking(ann), True)
        with pytest.raises(QuotaExceeded):
            coordinator.join(ann, "another", asking(ann), True)
        future = coordinator.join(bob, "g0", asking(bob, "b"), False)
        assert future.done() and len(coordinator.named("g0")) == 2
        for group in coordinator.groups():
            members = [(member, None) for member in (*group.members, *getattr(group, "pending", ()))]
            for caller in (ann, bob):
                coordinator.leave(caller, group.id, members)
        assert (coordinator.groups(), coordinator.memory.taken) == ([], 0)

    asyncio.run(with_coordinator(use))


def test_ids_that_were_given_out_are_members() -> None:
    ann = principal("ann", "a")

    def use(coordinator: Coordinator) -> None:
        coordinator._members_max = 3
        ids = []
        for _ in range(3):
            with pytest.raises(GroupError, match="member_id_required") as caught:
                coordinator.join(ann, "g", asking(ann, "a"), True)
            ids.append(caught.value.member_id)
        for needs_id in (True, False):
            with pytest.raises(GroupError, match="group_max_size_reached"):
                coordinator.join(ann, "g", asking(ann, "a"), needs_id)
        for member in ids:
            coordinator.join(ann, "g", asking(ann, "a", member=member), True)
        (group,) = coordinator.groups()
        assert list(group.members) == ids

    asyncio.run(with_coordinator(use))


def test_an_id_is_good_for_the_group_that_it_was_given_for() -> None:
    """Who was given an id before others came, and may not read what they read, starts anew."""
    ann, bob = principal("ann", "a", "x"), principal("bob", "b", "x")

    def use(coordinator: Coordinator) -> None:
        with pytest.raises(GroupError, match="member_id_required") as caught:
            coordinator.join(ann, "g", asking(ann, "x"), True)
        coordinator.join(bob, "g", asking(bob, "x"), False)
        (group,) = coordinator.named("g")
        assert len(group.roster.callers) == 2
        coordinator.join(bob, "g", asking(bob, "x", "b"), False)
        # Bob reads more than Ann may, so her id is gone.
        assert set(group.roster.callers) == {bob.caller}
        with pytest.raises(GroupError, match="unknown_member_id"):
            coordinator.join(ann, "g", asking(ann, "a", member=caught.value.member_id), True)
        assert coordinator.join(ann, "g", asking(ann, "a"), False).done()

    asyncio.run(with_coordinator(use))


def test_nobody_comes_between_an_id_and_its_member() -> None:
    ann, bob = principal("ann", "a"), principal("bob", "b")

    def use(coordinator: Coordinator) -> None:
        with pytest.raises(GroupError, match="member_id_required") as caught:
            coordinator.join(ann, "g", asking(ann, "a"), True)
        for topics in ((), ("b",)):
            with pytest.raises(GroupError, match="member_id_required"):
                coordinator.join(bob, "g", asking(bob, *topics), True)
        assert coordinator.join(ann, "g", asking(ann, "a", member=caught.value.member_id), True).done()
        assert sorted(len(group.roster.callers) for group in coordinator.named("g")) == [1, 1]

    asyncio.run(with_coordinator(use))


def test_an_id_for_more_topics_removes_who_may_not_read_them() -> None:
    ann, both = principal("ann", "a"), principal("both", "a", "b")

    def use(coordinator: Coordinator) -> None:
        assert coordinator.join(ann, "g", asking(ann, "a"), False).done()
        with pytest.raises(GroupError, match="member_id_required") as caught:
            coordinator.join(both, "g", asking(both, "a", "b"), True)
        (group,) = coordinator.named("g")
        assert (list(group.members), set(group.roster.callers)) == ([], {both.caller})
        assert coordinator.join(both, "g", asking(both, "a", "b", member=caught.value.member_id), True).done()

    asyncio.run(with_coordinator(use))

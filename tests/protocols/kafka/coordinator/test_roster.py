"""What members of groups take in memory, by caller: a share for each, and nothing is left of those who are gone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace.core.errors import HeadraceError, QuotaExceeded
from headrace.core.rights import Caller, check_grants
from headrace.protocols.kafka.coordinator.assignment import assign
from headrace.protocols.kafka.coordinator.consumer_group import JOINING, LEAVING, ConsumerGroup, ConsumerHeartbeat
from headrace.protocols.kafka.coordinator.group import ClassicGroup
from headrace.protocols.kafka.coordinator.requests import ASSIGNMENT_BYTES_MAX, GroupError, Join
from headrace.protocols.kafka.coordinator.roster import MEMBER_BYTES, PLACE_BYTES, GroupMemory, Roster, Seat

ANN, BOB = (Caller(name, check_grants([(f"{name}-*", ["read"])])) for name in ("ann", "bob"))


def test_a_caller_has_half_of_the_memory() -> None:
    memory = GroupMemory(8 * MEMBER_BYTES)
    roster, other = Roster(memory), Roster(memory)
    for number in range(4):
        roster.put(f"a{number}", Seat(ANN))
    for refused in ("one more", "a0"):
        with pytest.raises(QuotaExceeded, match="bytes of members of Kafka's groups"):
            roster.put(refused, Seat(ANN, size=1))
    assert roster.seat("one more") is None and roster.seat("a0") == Seat(ANN)
    for number in range(4):
        other.put(f"b{number}", Seat(BOB))
    # What was Ann's becomes Bob's only if he has room for it.
    with pytest.raises(QuotaExceeded):
        roster.put("a0", Seat(BOB))
    other.remove("b0")
    roster.put("a0", Seat(BOB))
    roster.put("one more", Seat(ANN))
    for each in (roster, other):
        for member in ("a0", "a1", "a2", "a3", "one more", "b1", "b2", "b3", "nobody"):
            each.remove(member)
        assert (set(each.topics), set(each.callers)) == (set(), set())
    assert memory.taken == 0


def test_what_changes_is_told_once() -> None:
    roster = Roster()
    roster.put("one", Seat(ANN, "till", frozenset({"x", "y"})))
    roster.put("two", Seat(BOB, None, frozenset({"y"})))
    assert roster.changes() == {"x": True, "y": True}
    roster.put("one", Seat(ANN, "till", frozenset({"y", "z"})))
    assert roster.changes() == {"x": False, "z": True}
    assert (roster.instance("till"), roster.instance("other"), roster.instance(None)) == ("one", None, None)
    roster.rename("one", "uno")
    assert (roster.instance("till"), roster.seat("one")) == ("uno", None)
    roster.put("uno", Seat(ANN, "desk", frozenset({"y", "z"})))
    assert (roster.instance("till"), roster.instance("desk")) == (None, "uno")
    roster.remove("two")
    assert roster.changes() == {}
    roster.remove("uno")
    assert roster.changes() == {"y": False, "z": False}


def test_strangers_may_not_read_a_topic() -> None:
    roster = Roster()
    for member, caller in (("1", ANN), ("2", BOB), ("3", ANN)):
        roster.put(member, Seat(caller))
    assert roster.strangers("g", []) == []
    assert roster.strangers("g", ["ann-1", "ann-2"]) == ["2"]
    assert roster.strangers("g", ["ann-1", "bob-1"]) == ["1", "2", "3"]


def test_an_assignment_is_bounded_and_is_the_leaders() -> None:
    memory = GroupMemory(4 * ASSIGNMENT_BYTES_MAX)
    group = ClassicGroup("g", 0.0, 10, Roster(memory))
    group.join(Join("", None, "c", "h", 100.0, 30.0, "consumer", {"range": b""}, ANN), "ann", False, 0.0)
    taken = memory.taken
    with pytest.raises(GroupError, match="invalid_request"):
        group.sync("ann", None, group.generation, {"ann": bytes(ASSIGNMENT_BYTES_MAX + 1)}, 30.0)
    # Nothing is kept for those who are not in the group.
    group.sync("ann", None, group.generation, {"ann": bytes(100_000), "stranger": bytes(1 << 20)}, 30.0)
    assert memory.taken == taken + 100_000
    group.leave([("ann", None)], 31.0)
    assert memory.taken == 0 and group.is_unused


def test_partitions_take_memory_too() -> None:
    memory = GroupMemory(400 * PLACE_BYTES)
    group = ConsumerGroup("g", 10, Roster(memory))
    group.heartbeat(ConsumerHeartbeat("m", JOINING, None, "c", "h", 30.0, frozenset({"t"}), None, caller=ANN), 0.0)
    with pytest.raises(QuotaExceeded):
        group.plan({"t": (1, 1_000)})
    taken = memory.taken
    plan = group.plan({"t": (1, 100)})
    assert plan is not None and memory.taken == taken + 100 * PLACE_BYTES
    group.leave("m", None, LEAVING, 0.0)
    assert memory.taken == 0


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_left_of_a_classic_group(seed: int) -> None:
    chance, memory, now = random.Random(seed), GroupMemory(1 << 20), 0.0
    group = ClassicGroup("g", 0.1, 8, Roster(memory))
    for step in range(300):
        now += chance.random()
        known = chance.choice([*group.members, *group.pending, "", "", "stranger"])
        instance = chance.choice([None, None, "till"])
        with suppress(GroupError, HeadraceError):
            action = chance.random()
            if action < 0.5:
                protocols = {"range": bytes(chance.randrange(1_000))}
                topics = frozenset(chance.sample("xyz", chance.randrange(3)))
                caller = chance.choice([ANN, BOB])
                join = Join(known, instance, "c", "h", 5.0, 3.0, "consumer", protocols, caller, topics)
                group.join(join, f"m{step}", chance.random() < 0.3, now)
            elif action < 0.7:
                given = {member: bytes(chance.randrange(500)) for member in group.members}
                group.sync(known, instance, group.generation, given, now)
            elif action < 0.8:
                group.leave([(known, instance), ("stranger", None)], now)
            elif action < 0.9:
                group.remove(chance.sample(sorted(group.members), min(2, len(group.members))), now)
            else:
                group.tick(now)
        seats = {*group.members, *group.pending}
        assert all(group.roster.seat(member) is not None for member in seats)
        assert {*group.joining} | {*group.syncing} <= group.members.keys()
        if group.joining or group.syncing or group.members:
            due = group.next_deadline()
            assert due is not None and all(due <= end for end in deadlines(group))
    group.remove([*group.members, *group.pending], now)
    group.tick(now + 100.0)
    assert group.is_unused and memory.taken == 0 and not group.roster.topics and not group.roster.callers


def deadlines(group: ClassicGroup) -> Iterator[float]:
    yield from group.pending.values()
    for member in group.members.values():
        if member.id not in group.joining and member.id not in group.syncing:
            yield member.deadline


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_left_of_a_group_of_the_newer_protocol(seed: int) -> None:
    chance, memory, now = random.Random(seed), GroupMemory(1 << 20), 0.0
    group = ConsumerGroup("g", 8, Roster(memory))
    sizes = {"x": (1, 5), "y": (2, 3), "z": None}
    for step in range(300):
        now += chance.random()
        known = chance.choice([*group.members, f"m{step}"])
        member = group.members.get(known)
        topics = frozenset(chance.sample("xyz", chance.randrange(1, 3)))
        epoch = JOINING if member is None or chance.random() < 0.1 else member.epoch
        owned = None if member is None or chance.random() < 0.5 else member.assigned
        instance = chance.choice([None, "till"]) if member is None else member.instance_id
        told = topics if epoch == JOINING or chance.random() < 0.2 else None
        request = ConsumerHeartbeat(
            known, epoch, instance, "c", "h", 3.0, told, owned, caller=chance.choice([ANN, BOB])
        )
        with suppress(GroupError):
            if chance.random() < 0.1:
                group.leave(known, instance, chance.choice([LEAVING, -2]), now)
            elif chance.random() < 0.1:
                group.tick(now)
            else:
                group.heartbeat(request, now)
                plan = group.plan(sizes) if chance.random() < 0.7 else None
                if plan is not None:
                    group.apply(plan, assign(plan))
                group.reconcile(known, request, now)
        held = {place: each.id for each in group.members.values() for place in each.held}
        assert group._holders == held
        due = group.next_deadline()
        ends = [each.deadline for each in group.members.values()]
        ends += [each.revocation_deadline for each in group.members.values() if each.revocation_deadline is not None]
        assert not ends or (due is not None and due <= min(ends))
    group.remove(list(group.members))
    assert memory.taken == 0 and not group._holders and not group.roster.topics and not group.roster.callers

"""What groups cost: twice the members or partitions are twice the work, and who changes nothing costs nothing."""

from __future__ import annotations

import pytest

from headrace.protocols.kafka.coordinator.assignment import Owned, Plan, assign
from headrace.protocols.kafka.coordinator.consumer_group import JOINING, ConsumerGroup, ConsumerHeartbeat
from headrace.protocols.kafka.coordinator.group import ClassicGroup, State
from headrace.protocols.kafka.coordinator.requests import Join
from tests.protocols.kafka.work import work

TOPICS = frozenset({"t"})
# For twice as much; quadratic work would be four times as much.
LINEAR = 2.5


def joined(members: int) -> tuple[ClassicGroup, int]:
    """A group after its first round, and what that cost."""
    group = ClassicGroup("g", 1.0, members)

    def join() -> None:
        for number in range(members):
            request = Join("", f"till-{number}", "c", "h", 10.0, 30.0, "consumer", {"range": b"", "sticky": b""})
            group.join(request, f"m{number}", False, 0.0)
        group.tick(1.0)

    return group, work(join)


def synced(group: ClassicGroup) -> int:
    def sync() -> None:
        for number, member in enumerate(reversed(list(group.members))):
            group.sync(member, f"till-{len(group.members) - 1 - number}", group.generation, {}, 1.0)
            assert group.next_deadline() is not None

    return work(sync)


def test_a_round_is_as_much_work_as_it_has_members() -> None:
    (small, few), (large, many) = joined(50), joined(100)
    assert many < LINEAR * few
    assert synced(large) < LINEAR * synced(small)
    assert large.state == State.STABLE


def test_leaving_is_as_much_work_as_there_are_members_that_leave() -> None:
    costs = []
    for members in (50, 100):
        group, _ = joined(members)
        synced(group)
        generation = group.generation
        # Half of them twice, and strangers.
        leavers = [(member, None) for member in group.members] + [(f"m{each}", None) for each in range(members)]
        costs.append(work(lambda group=group, leavers=leavers: group.leave(leavers, 1.0)))  # type: ignore[misc]
        assert (group.state, group.generation) == (State.EMPTY, generation + 1)
    assert costs[1] < LINEAR * costs[0]


def consumers(members: int, partitions: int) -> tuple[ConsumerGroup, list[ConsumerHeartbeat]]:
    """A settled group, and what its members send as long as nothing changes."""
    group, sizes = ConsumerGroup("g", members), {"t": (1, partitions)}
    for number in range(members):
        joining = ConsumerHeartbeat(f"m{number}", JOINING, f"till-{number}", "c", "h", 30.0, TOPICS, None)
        group.heartbeat(joining, 0.0)
    plan = group.plan(sizes)
    assert plan is not None
    group.apply(plan, assign(plan))
    for member in group.members:
        group.reconcile(member, ConsumerHeartbeat(member, JOINING, None, "c", "h", 30.0, None, None), 0.0)
    assert group.state == "Stable" and group.plan(sizes) is None
    beats = [
        ConsumerHeartbeat(each.id, each.epoch, each.instance_id, "c", "h", 30.0, None, None)
        for each in group.members.values()
    ]
    return group, beats


@pytest.mark.parametrize(("members", "partitions"), [(2, 20), (50, 20), (2, 5_000), (50, 5_000)])
def test_a_heartbeat_that_changes_nothing_costs_the_same_in_every_group(members: int, partitions: int) -> None:
    group, beats = consumers(members, partitions)

    def beat() -> None:
        group.heartbeat(beats[-1], 1.0)
        member, is_told = group.reconcile(beats[-1].member_id, beats[-1], 1.0)
        assert not is_told and member.assigned == member.target and group.next_deadline() is not None

    assert work(beat) < 500


def test_dividing_is_as_much_work_as_there_are_partitions() -> None:
    def cost(members: int, topics: int) -> int:
        read = frozenset(f"t{number}" for number in range(topics))
        plan = Plan(
            1,
            {f"m{number}": frozenset(read) for number in range(members)},
            {topic: (number, 20) for number, topic in enumerate(sorted(read))},
            {f"m{number}": frozenset() for number in range(members)},
        )
        return work(lambda: assign(plan))

    assert cost(20, 40) < LINEAR * cost(20, 20)
    assert cost(80, 20) < LINEAR * cost(40, 20)


def test_members_with_other_topics_share_evenly() -> None:
    sizes = {"a": (1, 6), "b": (2, 6), "c": (3, 6)}
    topics = {"x": frozenset("a"), "y": frozenset("ab"), "z": frozenset("abc"), "idle": frozenset("d")}
    found = assign(Plan(1, topics, sizes, dict.fromkeys(topics, frozenset())))
    assert {member: len(owned) for member, owned in found.items()} == {"x": 6, "y": 6, "z": 6, "idle": 0}
    assert found["x"] == {Owned(1, partition) for partition in range(6)}
    again = assign(Plan(2, topics, sizes, found))
    assert all(again[member] is found[member] for member in topics)

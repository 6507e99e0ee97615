"""Rebalancing in two phases: case by case, and random lives in which no partition ever has two owners."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import MemberNotFound
from headrace.core.groups import group as rules
from headrace.core.groups.group import Group, Held, Late
from tests.core.groups.lives import PARTITIONS, acknowledged, group_of, settled


def reads(group: Group) -> dict[str, list[int]]:
    return {member: rules.assigned(group, member, PARTITIONS) for member in group.order}


def test_a_partition_moves_only_once_its_owner_let_it_go() -> None:
    group = group_of("ann", "bob")
    assert reads(group) == {"ann": [0, 1], "bob": []}
    assert rules.revoking(group, "ann") == [2, 3]
    assert set(group.owners(PARTITIONS).values()) == {"ann"}, "the owner while it is being revoked"
    waiting = rules.heartbeat(group, "ann", PARTITIONS)
    assert waiting.owners(PARTITIONS) == group.owners(PARTITIONS), "a heartbeat alone lets nothing go"
    half = rules.heartbeat(group, "ann", PARTITIONS, Held(group.generation, [0, 1, 3]))
    assert reads(half) == {"ann": [0, 1], "bob": [2]}
    done = acknowledged(half, "ann")
    assert reads(done) == {"ann": [0, 1], "bob": [2, 3]}
    assert rules.revoking(done, "ann") == []
    assert done.generation == half.generation + 1 == group.generation + 2


def test_a_member_that_reads_has_let_go() -> None:
    group = rules.heartbeat(group_of("ann", "bob"), "ann", PARTITIONS, is_reading=True)
    assert reads(group) == {"ann": [0, 1], "bob": [2, 3]}
    assert group.members["ann"].read_generation == group.generation
    again = rules.heartbeat(group, "ann", PARTITIONS, is_reading=True)
    assert again.generation == group.generation


def test_members_that_join_together_ask_for_each_partition_once() -> None:
    group = group_of("ann", "bob", "cem", "dan")
    assert rules.revoking(group, "ann") == [1, 2, 3]
    assert reads(acknowledged(group, "ann")) == {"ann": [0], "bob": [1], "cem": [2], "dan": [3]}


def test_what_is_needed_no_longer_is_kept() -> None:
    group = rules.leave(group_of("ann", "bob"), "bob", PARTITIONS)
    assert reads(group) == {"ann": [0, 1, 2, 3]}
    assert rules.revoking(group, "ann") == []


def test_what_was_asked_for_first_stays_asked_for() -> None:
    group = group_of("ann", "bob", "cem")
    assert rules.revoking(group, "ann") == [2, 3]
    fewer = rules.leave(group, "cem", PARTITIONS)
    assert rules.revoking(fewer, "ann") == [2, 3]
    assert fewer.members["ann"] == group.members["ann"]


def test_a_member_that_does_not_acknowledge_gives_up_at_once() -> None:
    group = group_of("ann", "bob", max_poll_seconds=0)
    assert reads(group) == {"ann": [0, 1], "bob": [2, 3]}
    assert rules.revoking(group, "ann") == []


def test_what_is_not_let_go_in_time_is_taken() -> None:
    group = group_of("ann", "bob")
    asked = group.members["ann"].revoking
    assert asked == {2: group.generation, 3: group.generation}
    taken = rules.expire(group, {}, [Late("ann", partition, asked[partition]) for partition in asked], PARTITIONS)
    assert reads(taken) == {"ann": [0, 1], "bob": [2, 3]}
    assert taken.generation == group.generation + 1


def test_what_was_let_go_or_asked_for_again_is_not_taken() -> None:
    group = group_of("ann", "bob")
    late = [Late("ann", 2, group.generation), Late("cem", 0, 1)]
    done = acknowledged(group, "ann")
    assert rules.expire(done, {}, late, PARTITIONS) is done
    again = rules.join(rules.leave(group, "bob", PARTITIONS), "bob", 30.0, PARTITIONS)
    assert rules.revoking(again, "ann") == [2, 3]
    assert rules.expire(again, {}, late, PARTITIONS) is again


def test_the_session_of_an_owner_that_ends_frees_its_partitions() -> None:
    assert reads(rules.expire(group_of("ann", "bob"), {"ann": ""}, (), PARTITIONS)) == {"bob": [0, 1, 2, 3]}


def test_a_late_acknowledgement_takes_nothing_from_a_member() -> None:
    group = group_of("ann", "bob")
    late = Held(group.generation, [0, 1])
    group = acknowledged(group, "ann")
    group = rules.leave(group, "bob", PARTITIONS)
    assert reads(group) == {"ann": [0, 1, 2, 3]}
    assert rules.heartbeat(group, "ann", PARTITIONS, late) == group
    # Nor does one that claims what is another's.
    assert rules.heartbeat(group, "ann", PARTITIONS, Held(group.generation, range(9))) == group


def test_an_acknowledgement_of_a_revocation_that_was_taken_back_takes_nothing() -> None:
    asked = group_of("ann", "bob")
    late = Held(asked.generation, [0, 1])
    taken_back = rules.leave(asked, "bob", PARTITIONS)
    assert rules.heartbeat(taken_back, "ann", PARTITIONS, late) == taken_back
    asked_again = rules.join(taken_back, "cem", 30.0, PARTITIONS)
    assert rules.revoking(asked_again, "ann") == [2, 3]
    assert reads(rules.heartbeat(asked_again, "ann", PARTITIONS, late)) == {"ann": [0, 1], "cem": []}
    assert reads(acknowledged(asked_again, "ann")) == {"ann": [0, 1], "cem": [2, 3]}


def test_joining_again_keeps_what_is_owned() -> None:
    group = settled(group_of("ann", "bob"))
    again = rules.join(group, "ann", 30.0, PARTITIONS)
    assert again.owners(PARTITIONS) == group.owners(PARTITIONS)
    assert again.generation == group.generation


def test_a_group_without_members_has_no_owners() -> None:
    group = rules.leave(group_of("ann"), "ann", PARTITIONS)
    assert group.owners(PARTITIONS) == {}
    assert rules.expire(group, {}, (), PARTITIONS) is group


MEMBERS = ["ann", "bob", "cem", "dan", "eve"]
ACTIONS = st.tuples(
    st.sampled_from(
        ["join", "join_old", "leave", "heartbeat", "read", "acknowledge", "late", "silent", "overdue", "grow"]
    ),
    st.sampled_from(MEMBERS),
    st.sampled_from(["one", "two"]),
)


@given(st.lists(ACTIONS, max_size=60), st.integers(1, 9))
def test_in_any_life_of_a_group_a_partition_has_one_owner_in_a_generation(
    actions: list[tuple[str, str, str]], partitions: int
) -> None:
    group = Group("readers")
    owner_in: dict[tuple[int, int], str] = {}
    told: dict[str, Held] = {}
    for action, member, server in actions:
        before = group
        partitions += action == "grow"
        try:
            group = apply(group, action, member, server, partitions, told)
        except MemberNotFound:
            assert member not in group.members
            continue
        if member in group.members:
            told[member] = Held(group.generation, rules.assigned(group, member, partitions))
        owned = [partition for known in group.members.values() for partition in known.owned]
        assert len(owned) == len(set(owned)), "two owners"
        assert sorted(owned) == (list(range(partitions)) if group.members else []), "no partition is without an owner"
        for partition, owner in group.owners(partitions).items():
            assert owner_in.setdefault((group.generation, partition), owner) == owner
        if group.generation == before.generation:
            assert group.owners(partitions) == before.owners(partitions)
            assert (group is before) == (group == before), "what changes nothing is the same value"
        for name, known in group.members.items():
            assert known.revoking.keys() <= known.owned.keys()
            for partition in known.owned.keys() & before.owners(partitions).keys():
                was = before.owners(partitions)[partition]
                # It changed hands: its owner had let it go, left, or ran out of time.
                if was != name:
                    assert known.owned[partition] == group.generation
                    assert may_lose(before, was, partition, action, member, server)
    assert_balanced(converged(group, partitions), partitions)


def apply(group: Group, action: str, member: str, server: str, partitions: int, told: dict[str, Held]) -> Group:
    if action in ("join", "join_old"):
        return rules.join(group, member, 10.0, partitions, 0 if action == "join_old" else 5.0, server=server)
    if action == "leave":
        return rules.leave(group, member, partitions)
    if action in ("silent", "grow"):
        return rules.expire(group, {member: server} if action == "silent" else {}, (), partitions)
    if action == "overdue":
        asked = group.members[member].revoking if member in group.members else {}
        return rules.expire(group, {}, [Late(member, *each) for each in asked.items()], partitions)
    held = {"acknowledge": Held(group.generation, []), "late": told.get(member)}.get(action)
    if action == "acknowledge" and member in group.members:
        held = Held(group.generation, rules.assigned(group, member, partitions))
    return rules.heartbeat(group, member, partitions, held, is_reading=action == "read", server=server)


def may_lose(before: Group, owner: str, partition: int, action: str, member: str, server: str) -> bool:
    known = before.members[owner]
    is_gone = owner == member and (action == "leave" or (action == "silent" and server == known.server))
    is_let_go = owner == member and action in ("read", "acknowledge", "late", "join_old")
    is_overdue = owner == member and action == "overdue" and partition in known.revoking
    return is_gone or is_let_go or is_overdue or known.release_timeout_us == 0


def converged(group: Group, partitions: int) -> Group:
    """The group once everybody did what they were asked; no matter in which order, two rounds are enough."""
    group = rules.expire(group, {}, (), partitions)
    for _ in range(2):
        group = settled(group, partitions)
    return group


def assert_balanced(group: Group, partitions: int) -> None:
    counts = [len(member.owned) for member in group.members.values()]
    assert not any(member.revoking for member in group.members.values())
    assert sum(counts) == (partitions if counts else 0)
    assert max(counts, default=0) - min(counts, default=0) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_a_change_of_members_moves_as_few_partitions_as_possible(seed: int) -> None:
    chance = random.Random(seed)
    partitions = chance.randint(1, 40)
    group = Group("readers")
    for _ in range(30):
        group = converged(group, partitions)
        before = group.owners(partitions)
        name = chance.choice(MEMBERS)
        if name in group.members:
            group = rules.leave(group, name, partitions)
        else:
            group = rules.join(group, name, 30.0, partitions)
        group = converged(group, partitions)
        assert_balanced(group, partitions)
        after = group.owners(partitions)
        moved = [each for each in before if after and before[each] in after.values() and after[each] != before[each]]
        stayed = [list(before.values()).count(name) for name in group.members]
        assert len(moved) <= surplus(stayed, partitions), (name, before, after)


def surplus(owned: list[int], partitions: int) -> int:
    """How many partitions those who stay must give up for even shares."""
    if not owned:
        return 0
    least, larger = divmod(partitions, len(owned))
    shares = [least + (place < larger) for place in range(len(owned))]
    return sum(max(0, count - share) for count, share in zip(sorted(owned, reverse=True), shares, strict=True))


def test_topics_of_one_partition_are_divided_among_members_that_read_all_of_them() -> None:
    owners = []
    for topic_index in range(4):
        group = rules.join(Group("g"), "ann", 10, partitions=1, topic_index=topic_index)
        group = rules.join(group, "bob", 10, partitions=1, topic_index=topic_index)
        group = rules.heartbeat(group, "ann", 1, is_reading=True)
        again = rules.join(group, "bob", 10, partitions=1, topic_index=topic_index)
        assert again.generation == group.generation, "it stays where it is"
        owners.append(group.owners(1)[0])
    assert owners == ["ann", "bob", "ann", "bob"]


def test_the_index_of_one_member_counts_for_all() -> None:
    group = rules.join(Group("g"), "ann", 10, partitions=1, max_poll_seconds=0)
    group = rules.join(group, "bob", 10, partitions=1, topic_index=1)
    assert group.owners(1) == {0: "bob"}

"""The rules of a group, one by one, and a random life of one in which they must hold together."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import (
    GroupSizeConflict,
    HeadraceError,
    InvalidInput,
    MemberNotFound,
    PartitionNotOwned,
    StaleGeneration,
)
from headrace.core.groups import group as rules
from headrace.core.groups.group import Group
from headrace.core.limits import (
    GROUP_CONSUMERS_MAX,
    MICROSECONDS,
    SESSION_TIMEOUT_SECONDS_MAX,
    SESSION_TIMEOUT_SECONDS_MIN,
    TIME_US_MAX,
)

NOW_US = 1_700_000_000 * MICROSECONDS
SECOND = MICROSECONDS


def group_of(*members: str, timeout_seconds: float = 30.0, now_us: int = NOW_US) -> Group:
    """An open group whose members joined in this order."""
    group = Group("readers")
    for member in members:
        group = rules.join(group, member, timeout_seconds, now_us)
    return group


def fixed(consumers: int) -> Group:
    return Group("readers", consumers)


# What may be given


@pytest.mark.parametrize("consumers", [1, 3, GROUP_CONSUMERS_MAX])
def test_a_size_within_the_bounds_is_taken(consumers: int) -> None:
    assert rules.check_consumers(consumers) == consumers


@pytest.mark.parametrize("consumers", [0, -1, GROUP_CONSUMERS_MAX + 1, 1.0, "3", None, True])
def test_any_other_size_is_refused(consumers: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        rules.check_consumers(consumers)
    assert (caught.value.field, caught.value.value) == ("consumers", repr(consumers))
    assert f"1 to {GROUP_CONSUMERS_MAX}" in caught.value.rule


@pytest.mark.parametrize("read_from", ["earliest", "latest", 0, NOW_US, TIME_US_MAX])
def test_a_group_begins_at_an_end_or_at_a_time(read_from: object) -> None:
    assert rules.check_read_from(read_from) == read_from


@pytest.mark.parametrize("read_from", ["newest", "", -1, TIME_US_MAX + 1, 1.5, None, True, b"earliest", ["earliest"]])
def test_any_other_beginning_is_refused(read_from: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        rules.check_read_from(read_from)
    assert (caught.value.field, caught.value.value) == ("read_from", repr(read_from))


@pytest.mark.parametrize("important", [None, True, False])
def test_a_group_is_important_or_not_or_stays_as_it_is(important: object) -> None:
    assert rules.check_important(important) is important


@pytest.mark.parametrize("important", [0, 1, "no", []])
def test_what_is_not_a_truth_value_is_refused(important: object) -> None:
    with pytest.raises(InvalidInput, match="important is"):
        rules.check_important(important)


@pytest.mark.parametrize("seconds", [SESSION_TIMEOUT_SECONDS_MIN, 1, 30.0, SESSION_TIMEOUT_SECONDS_MAX])
def test_a_session_timeout_within_the_bounds_is_taken(seconds: float) -> None:
    assert rules.check_session_timeout(seconds) == seconds


@pytest.mark.parametrize("seconds", [0, -1, 0.09, SESSION_TIMEOUT_SECONDS_MAX + 1, math.nan, math.inf, "30", None])
def test_any_other_session_timeout_is_refused_and_nobody_joins(seconds: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        rules.join(Group("readers"), "ann", seconds, NOW_US)
    assert (caught.value.field, caught.value.value) == ("session_timeout_seconds", repr(seconds))


# Order


def test_fixed_consumers_count_by_index_and_members_by_name() -> None:
    assert fixed(12).order == [str(index) for index in range(12)]
    assert group_of("cem", "ann", "bob").order == ["ann", "bob", "cem"]
    assert Group("readers").order == []


def test_partitions_go_round_the_order() -> None:
    group = group_of("bob", "ann")
    assert rules.assigned(group, "ann", 5) == [0, 2, 4]
    assert rules.assigned(group, "bob", 5) == [1, 3]
    assert rules.assigned(fixed(3), "2", 6) == [2, 5]


@pytest.mark.parametrize(("group", "member"), [(fixed(2), "2"), (fixed(2), "ann"), (group_of("ann"), "bob")])
def test_a_stranger_is_assigned_nothing(group: Group, member: str) -> None:
    with pytest.raises(MemberNotFound) as caught:
        rules.assigned(group, member, 4)
    assert (caught.value.group, caught.value.member) == ("readers", member)


# Registering again


def test_registering_the_same_again_changes_nothing() -> None:
    assert rules.register(fixed(3), 3, None) == fixed(3)
    assert rules.register(fixed(3), None, None) == fixed(3)
    members = group_of("ann")
    assert rules.register(members, None, None) == members


def test_another_size_starts_a_generation() -> None:
    grown = rules.register(fixed(3), 5, None)
    assert (grown.consumers, grown.generation) == (5, 1)
    assert rules.register(grown, 2, None).generation == 2


def test_an_open_group_without_members_may_get_a_size() -> None:
    assert rules.register(Group("readers"), 2, None).consumers == 2


def test_a_group_with_members_gets_no_fixed_size() -> None:
    with pytest.raises(GroupSizeConflict, match="2 members that joined by themselves"):
        rules.register(group_of("ann", "bob"), 2, None)


def test_importance_changes_alone_and_without_a_generation() -> None:
    important = rules.register(group_of("ann"), None, True)
    assert important.important
    assert important.generation == 1
    assert not rules.register(important, None, False).important
    assert rules.register(important, None, None).important


# Joining, staying, leaving


def test_each_newcomer_starts_a_generation_and_a_renewal_none() -> None:
    group = group_of("ann", "bob")
    assert group.generation == 2
    renewed = rules.join(group, "ann", 60.0, NOW_US + SECOND)
    assert renewed.generation == 2
    assert renewed.members["ann"].deadline_us == NOW_US + 61 * SECOND
    assert renewed.members["bob"] == group.members["bob"]


def test_nobody_joins_a_group_of_fixed_size() -> None:
    with pytest.raises(GroupSizeConflict, match="fixed size of 2"):
        rules.join(fixed(2), "ann", 30.0, NOW_US)


def test_joining_takes_out_who_ran_out() -> None:
    later = NOW_US + 30 * SECOND
    group = rules.join(group_of("ann"), "bob", 30.0, later)
    assert list(group.members) == ["bob"]
    assert group.generation == 3


def test_a_heartbeat_moves_only_the_own_deadline() -> None:
    group = group_of("ann", "bob")
    beaten = rules.heartbeat(group, "ann", NOW_US + 10 * SECOND)
    assert beaten.members["ann"].deadline_us == NOW_US + 40 * SECOND
    assert beaten.members["bob"] == group.members["bob"]
    assert beaten.generation == group.generation


def test_a_heartbeat_after_the_deadline_finds_no_member() -> None:
    with pytest.raises(MemberNotFound, match="join again"):
        rules.heartbeat(group_of("ann"), "ann", NOW_US + 30 * SECOND)


def test_leaving_starts_a_generation_and_can_be_done_once() -> None:
    left = rules.leave(group_of("ann", "bob"), "ann")
    assert list(left.members) == ["bob"]
    assert left.generation == 3
    with pytest.raises(MemberNotFound):
        rules.leave(left, "ann")


def test_a_silent_member_is_out_at_its_own_deadline() -> None:
    group = rules.join(group_of("ann", timeout_seconds=10.0), "bob", 20.0, NOW_US)
    assert rules.expire(group, NOW_US + 10 * SECOND - 1) is group
    without_ann = rules.expire(group, NOW_US + 10 * SECOND)
    assert list(without_ann.members) == ["bob"]
    assert without_ann.generation == group.generation + 1
    assert rules.expire(without_ann, NOW_US + 20 * SECOND).members == {}


def test_a_fixed_group_has_nobody_to_expire() -> None:
    group = fixed(2)
    assert rules.expire(group, NOW_US) is group


# Committing


@pytest.mark.parametrize(
    ("group", "member", "generation", "partitions"),
    [
        (Group("readers"), None, None, [0, 1]),
        (Group("readers"), None, 0, [0, 1]),
        (fixed(2), None, None, [0, 1]),
        (fixed(2), "1", None, [1, 3]),
        (fixed(2), "0", 0, [0, 2]),
        (group_of("ann", "bob"), "bob", 2, [1]),
        (group_of("ann", "bob"), "ann", None, []),
    ],
)
def test_a_commit_to_ones_own_partitions_is_allowed(
    group: Group, member: str | None, generation: int | None, partitions: list[int]
) -> None:
    rules.check_commit(group, member, generation, partitions, NOW_US)


@pytest.mark.parametrize(
    ("member", "generation", "partitions", "error"),
    [
        (None, None, [0], GroupSizeConflict),
        ("eve", None, [0], MemberNotFound),
        ("ann", 1, [0], StaleGeneration),
        ("ann", 3, [0], StaleGeneration),
        ("ann", 2, [0, 1], PartitionNotOwned),
        ("bob", None, [2], PartitionNotOwned),
    ],
)
def test_any_other_commit_is_refused(
    member: str | None, generation: int | None, partitions: list[int], error: type[HeadraceError]
) -> None:
    with pytest.raises(error):
        rules.check_commit(group_of("ann", "bob"), member, generation, partitions, NOW_US)


def test_a_refused_commit_says_what_it_met() -> None:
    with pytest.raises(StaleGeneration) as stale:
        rules.check_commit(group_of("ann", "bob"), "ann", 1, [0], NOW_US)
    assert (stale.value.generation, stale.value.current) == (1, 2)
    with pytest.raises(PartitionNotOwned) as foreign:
        rules.check_commit(group_of("ann", "bob"), "ann", 2, [0, 3], NOW_US)
    assert (foreign.value.member, foreign.value.partition) == ("ann", 3)


def test_a_seek_is_remembered_by_the_generation_it_began() -> None:
    group = rules.seek(group_of("ann", "bob"))
    assert (group.generation, group.seek_generation) == (3, 3)
    later = rules.leave(group, "bob")
    assert (later.generation, later.seek_generation) == (4, 3)


def test_what_was_read_before_a_seek_is_not_committed_after_it() -> None:
    group = rules.seek(group_of("ann", "bob"))
    for generation in (None, 2):
        with pytest.raises(StaleGeneration):
            rules.check_commit(group, "ann", generation, [0], NOW_US)
    # A heartbeat is no reading.
    with pytest.raises(StaleGeneration):
        rules.check_commit(rules.heartbeat(group, "ann", NOW_US), "ann", None, [0], NOW_US)
    for after in (rules.heartbeat(group, "ann", NOW_US, is_reading=True), rules.join(group, "ann", 30.0, NOW_US)):
        rules.check_commit(after, "ann", None, [0], NOW_US)
        rules.check_commit(after, "ann", 3, [0], NOW_US)


def test_a_member_whose_session_ran_out_commits_no_more() -> None:
    group = group_of("ann", "bob")
    with pytest.raises(MemberNotFound):
        rules.check_commit(group, "ann", 2, [0], NOW_US + 30 * SECOND)


def test_once_all_members_ran_out_the_group_itself_may_commit() -> None:
    rules.check_commit(group_of("ann"), None, None, [0], NOW_US + 30 * SECOND)


def test_the_death_of_another_member_ends_the_generation_of_those_who_live() -> None:
    group = rules.join(group_of("ann", timeout_seconds=10.0), "bob", 60.0, NOW_US)
    with pytest.raises(StaleGeneration):
        rules.check_commit(group, "bob", 2, [1], NOW_US + 11 * SECOND)
    heard = rules.heartbeat(group, "bob", NOW_US + 11 * SECOND)
    rules.check_commit(heard, "bob", heard.generation, [0, 1], NOW_US + 11 * SECOND)


ACTIONS = st.tuples(
    st.sampled_from(["join", "leave", "heartbeat", "expire"]), st.sampled_from(["ann", "bob", "cem"]), st.integers(0, 9)
)


@given(st.lists(ACTIONS, max_size=40), st.integers(1, 7))
def test_in_any_life_of_a_group_owners_change_only_with_the_generation(
    actions: list[tuple[str, str, int]], partitions: int
) -> None:
    group, now_us = Group("readers"), NOW_US
    deadlines: dict[str, int] = {}
    for action, member, seconds in actions:
        now_us += seconds * SECOND
        before = group
        alive = {name for name, deadline in deadlines.items() if deadline > now_us}
        try:
            if action == "join":
                group = rules.join(group, member, 10.0, now_us)
            elif action == "heartbeat":
                group = rules.heartbeat(group, member, now_us)
            elif action == "leave":
                group = rules.leave(group, member)
            else:
                group = rules.expire(group, now_us)
        except MemberNotFound:
            assert member not in (alive if action == "heartbeat" else before.members)
            continue
        if action in ("join", "heartbeat"):
            deadlines[member] = now_us + 10 * SECOND
        elif action == "leave":
            deadlines.pop(member)
        if action != "leave":
            deadlines = {name: deadline for name, deadline in deadlines.items() if deadline > now_us}
        assert {name: known.deadline_us for name, known in group.members.items()} == deadlines
        is_quiet = action != "leave" and set(before.members) == set(group.members) == alive
        assert group.generation == before.generation if is_quiet else group.generation > before.generation
        owned = [partition for name in group.order for partition in rules.assigned(group, name, partitions)]
        assert sorted(owned) == (list(range(partitions)) if group.order else [])

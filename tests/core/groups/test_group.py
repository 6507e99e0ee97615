"""The rules of a group: what may be given, joining, staying, leaving. How partitions move is in test_rebalance."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headrace.core.errors import GroupSizeConflict, InvalidInput, MemberNotFound
from headrace.core.groups import group as rules
from headrace.core.groups.group import Group, Held
from headrace.core.limits import (
    GROUP_CONSUMERS_MAX,
    MAX_POLL_SECONDS_MAX,
    MICROSECONDS,
    SESSION_TIMEOUT_SECONDS_MAX,
    SESSION_TIMEOUT_SECONDS_MIN,
    TIME_US_MAX,
)
from tests.core.groups.lives import NOW_US, PARTITIONS, fixed, group_of, settled

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
        rules.join(Group("readers"), "ann", seconds, PARTITIONS)
    assert (caught.value.field, caught.value.value) == ("session_timeout_seconds", repr(seconds))


@pytest.mark.parametrize("seconds", [-1, MAX_POLL_SECONDS_MAX + 1, math.nan, "30", None])
def test_a_poll_interval_out_of_bounds_is_refused(seconds: Any) -> None:
    with pytest.raises(InvalidInput, match="max_poll_seconds"):
        rules.join(Group("readers"), "ann", 30.0, PARTITIONS, seconds)


# Order


def test_fixed_consumers_count_by_index_and_members_by_name() -> None:
    assert fixed(12).order == [str(index) for index in range(12)]
    assert group_of("cem", "ann", "bob").order == ["ann", "bob", "cem"]
    assert Group("readers").order == []


def test_fixed_consumers_are_assigned_by_modulo() -> None:
    assert rules.assigned(fixed(3), "2", 6) == [2, 5]
    assert rules.revoking(fixed(3), "2") == []
    assert fixed(2).owners(3) == {0: "0", 1: "1", 2: "0"}


def test_members_own_even_shares() -> None:
    group = settled(group_of("bob", "ann"))
    assert (rules.assigned(group, "bob", 4), rules.assigned(group, "ann", 4)) == ([0, 1], [2, 3])
    assert group.owners(4) == {0: "bob", 1: "bob", 2: "ann", 3: "ann"}


def test_partitions_that_were_just_added_have_no_owner_until_a_heartbeat() -> None:
    group = group_of("ann")
    assert rules.is_complete(group, PARTITIONS) and rules.is_complete(fixed(2), 9)
    assert not rules.is_complete(group, PARTITIONS + 1)
    grown = rules.heartbeat(group, "ann", PARTITIONS + 1)
    assert rules.assigned(grown, "ann", PARTITIONS + 1) == [0, 1, 2, 3, 4]
    assert grown.generation == group.generation + 1
    # A server that does not know of it yet takes nothing away.
    assert rules.heartbeat(grown, "ann", PARTITIONS).owners(PARTITIONS) == grown.owners(PARTITIONS + 1)


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
    assert rules.join(group, "bob", 30.0, PARTITIONS) is group
    renewed = rules.join(group, "ann", 60.0, PARTITIONS)
    assert renewed.generation == 2
    assert renewed.members["ann"].session_timeout_us == 60 * MICROSECONDS
    assert renewed.members["bob"] == group.members["bob"]


def test_nobody_joins_a_group_of_fixed_size() -> None:
    with pytest.raises(GroupSizeConflict, match="fixed size of 2"):
        rules.join(fixed(2), "ann", 30.0, PARTITIONS)


def test_a_heartbeat_that_changes_nothing_returns_the_same_value() -> None:
    group = settled(group_of("ann", "bob"))
    assert rules.heartbeat(group, "ann", PARTITIONS) is group
    assert rules.heartbeat(group, "ann", PARTITIONS, Held(group.generation, [0, 1])) is group
    reading = rules.heartbeat(group, "ann", PARTITIONS, is_reading=True)
    assert rules.heartbeat(reading, "ann", PARTITIONS, is_reading=True) is reading
    assert rules.heartbeat(reading, "bob", PARTITIONS) is reading


def test_a_member_is_heard_by_the_server_that_heard_it_last() -> None:
    group = settled(group_of("ann", "bob", server="one"))
    moved = rules.heartbeat(group, "ann", PARTITIONS, server="two")
    assert (moved.members["ann"].server, moved.members["bob"].server) == ("two", "one")
    assert moved.generation == group.generation
    assert rules.join(moved, "ann", 30.0, PARTITIONS, server="one").members["ann"].server == "one"
    # The server that heard it before may take it for silent, and the one that hears it now knows better.
    assert rules.expire(moved, {"ann": "one"}, (), PARTITIONS) is moved
    assert list(rules.expire(moved, {"ann": "two"}, (), PARTITIONS).members) == ["bob"]


def test_a_heartbeat_of_who_is_gone_finds_no_member() -> None:
    gone = rules.expire(group_of("ann"), {"ann": ""}, (), PARTITIONS)
    with pytest.raises(MemberNotFound, match="join again"):
        rules.heartbeat(gone, "ann", PARTITIONS)


def test_leaving_starts_a_generation_and_can_be_done_once() -> None:
    left = rules.leave(group_of("ann", "bob"), "ann", PARTITIONS)
    assert list(left.members) == ["bob"]
    assert left.generation == 3
    with pytest.raises(MemberNotFound):
        rules.leave(left, "ann", PARTITIONS)


def test_silent_members_are_out() -> None:
    group = group_of("ann", "bob")
    assert rules.expire(group, {}, (), PARTITIONS) is group
    without_ann = rules.expire(group, {"ann": ""}, (), PARTITIONS)
    assert list(without_ann.members) == ["bob"]
    assert without_ann.generation == group.generation + 1
    assert rules.expire(without_ann, {"ann": "", "bob": ""}, (), PARTITIONS).members == {}


def test_a_seek_is_remembered_by_the_generation_it_began() -> None:
    group = rules.seek(group_of("ann", "bob"))
    assert (group.generation, group.seek_generation) == (3, 3)
    later = rules.leave(group, "bob", PARTITIONS)
    assert (later.generation, later.seek_generation) == (4, 3)


def test_a_fixed_group_has_nobody_to_expire() -> None:
    group = fixed(2)
    assert rules.expire(group, {}, (), PARTITIONS) is group


@pytest.mark.parametrize("topic_index", [-1, 1.5, "0", True])
def test_an_index_that_no_topic_has_is_refused(topic_index: Any) -> None:
    with pytest.raises(InvalidInput, match="topic_index is"):
        rules.join(Group("g"), "ann", 10, PARTITIONS, topic_index=topic_index)

"""Which offsets may be committed: those of partitions that the member owns, whatever happens to the others."""

from __future__ import annotations

import pytest

from headrace.core.errors import (
    GroupSizeConflict,
    HeadraceError,
    MemberNotFound,
    PartitionNotOwned,
    StaleGeneration,
)
from headrace.core.groups import group as rules
from headrace.core.groups.commits import check_commit, refusals
from headrace.core.groups.group import Group
from tests.core.groups.lives import PARTITIONS, acknowledged, fixed, group_of, settled

# ann owns 0 and 1, bob owns 2 and 3 since generation 3; the present one is 3.
SHARED = settled(group_of("ann", "bob"))


@pytest.mark.parametrize(
    ("group", "member", "generation", "partitions"),
    [
        (Group("readers"), None, None, [0, 1]),
        (Group("readers"), None, 0, [0, 1]),
        (fixed(2), None, None, [0, 1]),
        (fixed(2), "1", None, [1, 3]),
        (fixed(2), "0", 0, [0, 2]),
        (SHARED, "ann", 1, [0, 1]),
        (SHARED, "ann", 3, [0]),
        (SHARED, "bob", 3, [2, 3]),
        (SHARED, "bob", None, [2]),
        (SHARED, "ann", None, []),
    ],
)
def test_a_commit_to_ones_own_partitions_is_allowed(
    group: Group, member: str | None, generation: int | None, partitions: list[int]
) -> None:
    check_commit(group, member, generation, partitions)
    assert refusals(group, member, generation, partitions) == {}


@pytest.mark.parametrize(
    ("group", "member", "generation", "partitions", "error"),
    [
        (SHARED, None, None, [0], GroupSizeConflict),
        (SHARED, "eve", None, [0], MemberNotFound),
        (SHARED, "ann", 4, [0], StaleGeneration),
        (SHARED, "ann", 3, [0, 2], PartitionNotOwned),
        (SHARED, "bob", None, [1], PartitionNotOwned),
        (SHARED, "bob", 2, [2], StaleGeneration),
        (Group("readers", generation=2), None, 1, [0], StaleGeneration),
        (fixed(2), "2", None, [0], MemberNotFound),
        (fixed(2), "0", 1, [0], StaleGeneration),
        (fixed(2), "0", 0, [1], PartitionNotOwned),
    ],
)
def test_any_other_commit_is_refused(
    group: Group, member: str | None, generation: int | None, partitions: list[int], error: type[HeadraceError]
) -> None:
    with pytest.raises(error):
        check_commit(group, member, generation, partitions)


def test_a_refused_commit_says_what_it_met() -> None:
    with pytest.raises(StaleGeneration) as stale:
        check_commit(SHARED, "bob", 2, [2])
    assert (stale.value.generation, stale.value.current) == (2, 3)
    with pytest.raises(PartitionNotOwned) as foreign:
        check_commit(SHARED, "ann", 3, [0, 3])
    assert (foreign.value.member, foreign.value.partition) == ("ann", 3)


def test_only_what_is_not_owned_is_refused() -> None:
    assert list(refusals(SHARED, "ann", 1, [0, 1, 2, 3])) == [2, 3]
    assert list(refusals(SHARED, "eve", 1, [0, 1])) == [0, 1]


def test_a_partition_can_be_committed_until_it_is_let_go() -> None:
    group = group_of("ann", "bob")
    assert rules.revoking(group, "ann") == [2, 3]
    check_commit(group, "ann", 1, [0, 1, 2, 3])
    assert list(refusals(acknowledged(group, "ann"), "ann", 1, [0, 1, 2, 3])) == [2, 3]


def test_positions_from_before_another_had_the_partition_are_not_committed() -> None:
    group = rules.leave(SHARED, "bob", PARTITIONS)
    assert rules.assigned(group, "ann", PARTITIONS) == [0, 1, 2, 3]
    assert list(refusals(group, "ann", 2, [0, 3])) == [3]
    assert not refusals(group, "ann", group.generation, [0, 3])


def test_what_was_read_before_a_seek_is_not_committed_after_it() -> None:
    group = rules.seek(SHARED)
    for generation in (None, 3):
        with pytest.raises(StaleGeneration):
            check_commit(group, "ann", generation, [0])
    # A heartbeat is no reading.
    with pytest.raises(StaleGeneration):
        check_commit(rules.heartbeat(group, "ann", PARTITIONS), "ann", None, [0])
    reading = rules.heartbeat(group, "ann", PARTITIONS, is_reading=True)
    for after in (reading, rules.join(group, "ann", 30.0, PARTITIONS)):
        check_commit(after, "ann", None, [0])
        check_commit(after, "ann", 4, [0])


def test_a_member_that_was_silent_commits_until_it_is_removed() -> None:
    gone = rules.expire(SHARED, {"ann": ""}, (), PARTITIONS)
    with pytest.raises(MemberNotFound):
        check_commit(gone, "ann", 3, [0])


def test_once_all_members_are_gone_the_group_itself_may_commit() -> None:
    check_commit(rules.expire(group_of("ann"), {"ann": ""}, (), PARTITIONS), None, None, [0])


def test_the_death_of_another_member_does_not_refuse_those_who_live() -> None:
    group = rules.expire(SHARED, {"ann": ""}, (), PARTITIONS)
    check_commit(group, "bob", SHARED.generation, [2, 3])
    check_commit(group, "bob", group.generation, [0, 1, 2, 3])
    assert list(refusals(group, "bob", SHARED.generation, [0, 1, 2, 3])) == [0, 1]

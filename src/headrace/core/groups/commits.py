"""Which offsets may be committed: a member commits to the partitions that it owns, whatever happens to the others.

A commit names the generation of the positions in it. It is refused for a partition that another member owns now, that
was given to this member later than that generation (in between another one had it), and for all partitions if an
operator moved the group since. A member that does not say its generation is taken to commit what it fetched last.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.errors import GroupSizeConflict, HeadraceError, MemberNotFound, PartitionNotOwned, StaleGeneration
from headrace.core.groups.assignment import owner_of
from headrace.core.groups.group import Group

Refusals = dict[int, HeadraceError]


def check_commit(group: Group, member: str | None, generation: int | None, partitions: Iterable[int]) -> None:
    """Raise for a commit of which any part must be refused."""
    for error in refusals(group, member, generation, partitions).values():
        raise error


def refusals(group: Group, member: str | None, generation: int | None, partitions: Iterable[int]) -> Refusals:
    """The partitions of a commit that must be refused, each with the reason.

    Without a member the group itself commits: that is for readers that divide the work by other means, and only as
    long as no members are in it.
    """
    if member is None:
        return _of_the_group(group, generation, partitions)
    if group.consumers is not None:
        return _of_a_fixed_consumer(group, group.consumers, member, generation, partitions)
    return _of_a_member(group, member, generation, partitions)


def _of_the_group(group: Group, generation: int | None, partitions: Iterable[int]) -> Refusals:
    if group.members:
        raise GroupSizeConflict(group.name, f"it has {len(group.members)} members: commit as one of them")
    if generation is not None and generation != group.generation:
        stale = StaleGeneration(group.name, generation, group.generation)
        return dict.fromkeys(partitions, stale)
    return {}


def _of_a_fixed_consumer(
    group: Group, consumers: int, member: str, generation: int | None, partitions: Iterable[int]
) -> Refusals:
    if member not in group.order:
        raise MemberNotFound(group.name, member)
    if generation is not None and generation != group.generation:
        return dict.fromkeys(partitions, StaleGeneration(group.name, generation, group.generation))
    return {
        partition: PartitionNotOwned(group.name, member, partition)
        for partition in partitions
        if str(owner_of(partition, consumers)) != member
    }


def _of_a_member(group: Group, member: str, generation: int | None, partitions: Iterable[int]) -> Refusals:
    known = group.members.get(member)
    if known is None:
        return dict.fromkeys(partitions, MemberNotFound(group.name, member))
    read = known.read_generation if generation is None else generation
    stale = StaleGeneration(group.name, read, group.generation)
    if not group.seek_generation <= read <= group.generation:
        return dict.fromkeys(partitions, stale)
    refused: Refusals = {}
    for partition in partitions:
        since = known.owned.get(partition)
        if since is None:
            refused[partition] = PartitionNotOwned(group.name, member, partition)
        elif generation is not None and since > generation:
            refused[partition] = stale
    return refused

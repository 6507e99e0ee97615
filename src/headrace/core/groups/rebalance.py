"""Rebalancing in two phases: a partition is revoked, and given to another member once its owner has let it go.

    free ──give──► owned ──revoke──► revoking ──let go, or out of time──► free
                     ▲                   │
                     └── needed here ────┘

A partition has one owner at a time: the member in whose `owned` it is, also while it is being revoked, so that the
owner can still commit. It becomes free when its owner names it no more in an acknowledgement, leaves, loses its
session, or does not let go in time (`group.expire`). In the same step a free partition is given to the next owner, so
none stays without one as long as there are members.

A partition is revoked in a generation. An acknowledgement names the generation it knows, and only lets go what was
revoked up to it: one that arrives late, or while the partition was given back to its owner, takes nothing from it.

A member with a release timeout of 0 does not acknowledge (a client from before this protocol): what it should give up
is taken at once, and its commits to it are refused. That is safe, and may deliver messages twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headrace.core.groups.assignment import deal, shares
from headrace.core.groups.member import Member

Members = Mapping[str, Member]


def is_settled(members: Members, partitions: int) -> bool:
    """Whether every partition has an owner: then nothing is to be done."""
    return not members or sum(len(member.owned) for member in members.values()) >= partitions


def let_go(member: Member, generation: int, held: Iterable[int]) -> Member:
    """The member after it said which partitions it holds, knowing what was revoked up to a generation."""
    holds = set(held)
    gone = {each for each, asked in member.revoking.items() if asked <= generation and each not in holds}
    return without(member, gone)


def let_all_go(member: Member) -> Member:
    """The member after it stopped reading all that was being revoked."""
    return without(member, set(member.revoking))


def rebalance(members: Members, partitions: int, generation: int) -> dict[str, Member]:
    """The members after one step: what is above a share is revoked, and what is free is given, in this generation.

    A partition that another server knows of, and this one does not yet, counts as soon as somebody owns it.
    """
    if not members:
        return {}
    count = max(partitions, 1 + max((each for member in members.values() for each in member.owned), default=-1))
    # Members may know different topics; any index does, as long as it is the same for all of them.
    indexes = [member.topic_index for member in members.values() if member.topic_index is not None]
    share = shares({name: len(member.owned) for name, member in members.items()}, count, max(indexes, default=None))
    held = {name: _revoked(member, share[name], generation) for name, member in members.items()}
    free = set(range(count)).difference(*(member.owned for member in held.values()))
    kept = {name: len(member.owned) - len(member.revoking) for name, member in held.items()}
    given: dict[str, dict[int, int]] = {name: {} for name in held}
    for partition, name in deal(free, kept, share).items():
        given[name][partition] = generation
    return {
        name: msgspec.structs.replace(member, owned={**member.owned, **given[name]}) if given[name] else member
        for name, member in held.items()
    }


def _revoked(member: Member, share: int, generation: int) -> Member:
    """The member with what it owns above its share being revoked; what it no longer needs to give up it keeps.

    What was asked for before is asked for again first: it may be on its way. Then goes what was given last.
    """
    above = len(member.owned) - share
    if above <= 0:
        return msgspec.structs.replace(member, revoking={}) if member.revoking else member
    chosen = sorted(member.owned, key=lambda each: (each not in member.revoking, -member.owned[each], -each))[:above]
    if member.release_timeout_us == 0:
        return without(member, set(chosen))
    revoking = {partition: member.revoking.get(partition, generation) for partition in chosen}
    return member if revoking == member.revoking else msgspec.structs.replace(member, revoking=revoking)


def without(member: Member, partitions: set[int]) -> Member:
    """The member after it lost some partitions."""
    if not partitions:
        return member
    owned = {each: since for each, since in member.owned.items() if each not in partitions}
    revoking = {each: asked for each, asked in member.revoking.items() if each not in partitions}
    return msgspec.structs.replace(member, owned=owned, revoking=revoking)

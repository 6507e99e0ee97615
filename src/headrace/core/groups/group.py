"""The rules of a group: its members and generations, and what each of them reads.

A group is a value; every rule takes one and returns the next. Two kinds share one shape: a fixed group has a set
number of consumers, known by their index; the members of an open group join and leave by themselves, and one that
does not send heartbeats is removed after its session timeout: who is silent, and for how long, is known elsewhere
(`broker/groups/sessions`). How their partitions change hands is in `rebalance`, which offsets they may commit in
`commits`.

A heartbeat that changes nothing returns the same value: nothing is to be stored then.

The generation grows whenever a partition gets another owner or is revoked, a member joins or leaves, or an operator
moves the group: a partition has one owner in a generation.

A seek moves the group's offsets and starts a generation too, which the group remembers (`seek_generation`): positions
of an earlier generation are invalid after it. Committing them is an error, and a member that learns of the seek
continues at the committed offsets, in all of its partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from headrace.core.checks import check_number, check_whole
from headrace.core.errors import GroupSizeConflict, InvalidInput, MemberNotFound
from headrace.core.groups.assignment import owner_of, partitions_of
from headrace.core.groups.member import Member
from headrace.core.groups.rebalance import is_settled, let_all_go, let_go, rebalance, without
from headrace.core.limits import (
    GROUP_CONSUMERS_MAX,
    MAX_POLL_SECONDS,
    MAX_POLL_SECONDS_MAX,
    MICROSECONDS,
    SESSION_TIMEOUT_SECONDS_MAX,
    SESSION_TIMEOUT_SECONDS_MIN,
    TIME_US_MAX,
    TOPICS_MAX,
)

# Where a group starts: at the oldest message, at the end, or at the first message at or after a time in microseconds.
ReadFrom = Literal["earliest", "latest"] | int


class Group(msgspec.Struct, frozen=True):
    """A named reader of a topic. `consumers` is set for a fixed group; `members` is filled in an open one.

    `seek_generation` is the generation that the last seek started; 0 if there was none.
    """

    name: str
    consumers: int | None = None
    important: bool = False
    read_from: ReadFrom = "earliest"
    generation: int = 0
    members: dict[str, Member] = {}
    seek_generation: int = 0

    @property
    def order(self) -> list[str]:
        """The consumers in the order of assignment."""
        if self.consumers is not None:
            return [str(index) for index in range(self.consumers)]
        return sorted(self.members)

    def owners(self, partitions: int) -> dict[int, str]:
        """The consumer of each partition that has one."""
        if self.consumers is not None:
            return {partition: str(owner_of(partition, self.consumers)) for partition in range(partitions)}
        return {partition: name for name, member in self.members.items() for partition in member.owned}


class Held(NamedTuple):
    """What a member says it reads: of its partitions these, knowing what was revoked up to a generation."""

    generation: int
    partitions: Iterable[int]


class Late(NamedTuple):
    """A partition that a member has not let go in time, and the generation in which it was asked to."""

    member: str
    partition: int
    asked: int


def check_consumers(consumers: object) -> int:
    """Check the size of a fixed group."""
    return check_whole("consumers", consumers, 1, GROUP_CONSUMERS_MAX)


def check_read_from(read_from: object) -> ReadFrom:
    """Check where a group starts."""
    if read_from == "earliest" or read_from == "latest":
        return read_from
    if isinstance(read_from, int) and not isinstance(read_from, bool) and 0 <= read_from <= TIME_US_MAX:
        return read_from
    raise InvalidInput("read_from", repr(read_from), "it must be 'earliest', 'latest' or a time in microseconds")


def check_important(important: object) -> bool | None:
    """Check whether retention waits for a group; None leaves it unchanged."""
    if important is None or isinstance(important, bool):
        return important
    raise InvalidInput("important", repr(important)[:100], "it must be true, false or not given")


def check_session_timeout(seconds: object) -> float:
    """How long a member may be silent."""
    return check_number("session_timeout_seconds", seconds, SESSION_TIMEOUT_SECONDS_MIN, SESSION_TIMEOUT_SECONDS_MAX)


def check_max_poll(seconds: object) -> float:
    """How long a member may go without a poll; 0 if it does not acknowledge what it lets go."""
    return check_number("max_poll_seconds", seconds, 0, MAX_POLL_SECONDS_MAX)


def register(group: Group, consumers: int | None, important: bool | None) -> Group:
    """Register a group again: what is given is changed, and another size starts a new generation."""
    if important is not None:
        group = msgspec.structs.replace(group, important=important)
    if consumers is None or consumers == group.consumers:
        return group
    if group.members:
        rule = f"it has {len(group.members)} members that joined by themselves, so it cannot get a fixed size"
        raise GroupSizeConflict(group.name, rule)
    return msgspec.structs.replace(group, consumers=consumers, generation=group.generation + 1)


def join(
    group: Group,
    member: str,
    session_timeout_seconds: float,
    partitions: int,
    max_poll_seconds: float = MAX_POLL_SECONDS,
    topic_index: int | None = None,
    server: str = "",
) -> Group:
    """Let a member in, or renew it; a member that is in already does not disturb the others."""
    if group.consumers is not None:
        raise GroupSizeConflict(group.name, f"it has a fixed size of {group.consumers}: nobody can join it")
    timeout_us = int(check_session_timeout(session_timeout_seconds) * MICROSECONDS)
    release_us = int(check_max_poll(max_poll_seconds) * MICROSECONDS)
    if topic_index is not None:
        check_whole("topic_index", topic_index, 0, TOPICS_MAX)
    known = group.members.get(member)
    kept = (0, {}, {}) if known is None else (known.read_generation, known.owned, known.revoking)
    joined = Member(timeout_us, *kept, release_us, topic_index, server)
    group = _settle(group, {**group.members, member: joined}, partitions)
    return _renew(group, member)


def heartbeat(
    group: Group, member: str, partitions: int, held: Held | None = None, is_reading: bool = False, server: str = ""
) -> Group:
    """Keep a member in, heard by a server; it may acknowledge what it holds.

    One that reads has let go all that is being revoked, and reads from positions of the present generation.
    """
    renewed = _member(group, member)
    if is_reading:
        renewed = let_all_go(renewed)
    elif held is not None:
        renewed = let_go(renewed, held.generation, held.partitions)
    if renewed.server != server:
        renewed = msgspec.structs.replace(renewed, server=server)
    if renewed is not group.members[member] or not is_settled(group.members, partitions):
        group = _settle(group, {**group.members, member: renewed}, partitions)
    return _renew(group, member) if is_reading else group


def leave(group: Group, member: str, partitions: int) -> Group:
    """Let a member go: the others get its partitions."""
    if member not in group.members:
        raise MemberNotFound(group.name, member)
    return _settle(group, {name: other for name, other in group.members.items() if name != member}, partitions)


def expire(group: Group, silent: Mapping[str, str], late: Collection[Late], partitions: int) -> Group:
    """The group without the members that were silent for too long, and without what was not let go in time.

    Silent members are named with the server that heard them: one that another server hears by now stays.
    """
    members = {name: member for name, member in group.members.items() if silent.get(name) != member.server}
    for name, partition, asked in late:
        if name in members and members[name].revoking.get(partition) == asked:
            members[name] = without(members[name], {partition})
    return _settle(group, members, partitions)


def seek(group: Group) -> Group:
    """The group after a seek: positions of every generation before are worth nothing."""
    generation = group.generation + 1
    return msgspec.structs.replace(group, generation=generation, seek_generation=generation)


def assigned(group: Group, member: str, partitions: int) -> list[int]:
    """The partitions that one member or fixed consumer should read."""
    if group.consumers is not None and member in group.order:
        return list(partitions_of(int(member), group.consumers, partitions))
    return _member(group, member).reads


def revoking(group: Group, member: str) -> list[int]:
    """The partitions that one member should let go; a fixed consumer has none."""
    return [] if group.consumers is not None else sorted(_member(group, member).revoking)


def is_complete(group: Group, partitions: int) -> bool:
    """Whether every partition has an owner; partitions that were just added have none until a heartbeat."""
    return group.consumers is not None or is_settled(group.members, partitions)


def _settle(group: Group, members: Mapping[str, Member], partitions: int) -> Group:
    """The group with these members and everything given and revoked: a new generation if it is not as before."""
    is_same = {name: member.owned for name, member in members.items()} == _owned(group)
    if is_same and is_settled(members, partitions):
        unchanged = members == group.members
        return group if unchanged else msgspec.structs.replace(group, members=dict(members))
    generation = group.generation + 1
    settled = rebalance(members, partitions, generation)
    return msgspec.structs.replace(group, members=settled, generation=generation)


def _owned(group: Group) -> dict[str, dict[int, int]]:
    return {name: member.owned for name, member in group.members.items()}


def _renew(group: Group, member: str) -> Group:
    """The group after a member learned of its present generation."""
    known = group.members[member]
    if known.read_generation == group.generation:
        return group
    renewed = msgspec.structs.replace(known, read_generation=group.generation)
    return msgspec.structs.replace(group, members={**group.members, member: renewed})


def _member(group: Group, member: str) -> Member:
    known = group.members.get(member)
    if known is None:
        raise MemberNotFound(group.name, member)
    return known

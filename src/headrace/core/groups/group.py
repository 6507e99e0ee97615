"""The rules of a group: its members and generations, and who may commit which offsets.

A group is a value; every rule takes one and returns the next. Two kinds share one shape: a fixed group has a set
number of consumers, known by their index; the members of an open group join and leave by themselves, and one that
does not send heartbeats is removed after its session timeout. The generation grows whenever the owners of partitions
may have changed, so that a former member cannot overwrite the commits of its successor.

A seek moves the group's offsets and starts a generation too, which the group remembers (`seek_generation`): positions
of an earlier generation are invalid after it. Committing them is an error, and a
member that learns of the seek continues at the committed offsets, in all of its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from headrace.core.checks import check_number, check_whole
from headrace.core.errors import GroupSizeConflict, InvalidInput, MemberNotFound, PartitionNotOwned, StaleGeneration
from headrace.core.groups.assignment import owner_of, partitions_of
from headrace.core.limits import (
    GROUP_CONSUMERS_MAX,
    MICROSECONDS,
    SESSION_TIMEOUT_SECONDS_MAX,
    SESSION_TIMEOUT_SECONDS_MIN,
    TIME_US_MAX,
)

# Where a group starts: at the oldest message, at the end, or at the first message at or after a time in microseconds.
ReadFrom = Literal["earliest", "latest"] | int


class Member(msgspec.Struct, frozen=True):
    """A member of an open group, with its session timeout and the time when its session expires.

    `read_generation` is the generation in which it joined or last fetched; commits without a generation use it.
    """

    session_timeout_us: int
    deadline_us: int
    read_generation: int = 0


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


def join(group: Group, member: str, session_timeout_seconds: float, now_us: int) -> Group:
    """Let a member in, or renew it; a member that is in already does not disturb the others."""
    if group.consumers is not None:
        raise GroupSizeConflict(group.name, f"it has a fixed size of {group.consumers}: nobody can join it")
    timeout_us = int(check_session_timeout(session_timeout_seconds) * MICROSECONDS)
    group = expire(group, now_us)
    generation = group.generation + (0 if member in group.members else 1)
    members = {**group.members, member: Member(timeout_us, now_us + timeout_us, generation)}
    return msgspec.structs.replace(group, members=members, generation=generation)


def heartbeat(group: Group, member: str, now_us: int, is_reading: bool = False) -> Group:
    """Keep a member in; one that reads does so from positions of the present generation."""
    group = expire(group, now_us)
    known = _member(group, member)
    read_generation = group.generation if is_reading else known.read_generation
    renewed = Member(known.session_timeout_us, now_us + known.session_timeout_us, read_generation)
    return msgspec.structs.replace(group, members={**group.members, member: renewed})


def leave(group: Group, member: str) -> Group:
    """Let a member go."""
    _member(group, member)
    members = {name: other for name, other in group.members.items() if name != member}
    return msgspec.structs.replace(group, members=members, generation=group.generation + 1)


def expire(group: Group, now_us: int) -> Group:
    """The group without the members whose session has run out."""
    alive = {name: member for name, member in group.members.items() if member.deadline_us > now_us}
    if len(alive) == len(group.members):
        return group
    return msgspec.structs.replace(group, members=alive, generation=group.generation + 1)


def seek(group: Group) -> Group:
    """The group after a seek: positions of every generation before are worth nothing."""
    generation = group.generation + 1
    return msgspec.structs.replace(group, generation=generation, seek_generation=generation)


def assigned(group: Group, member: str, partitions: int) -> list[int]:
    """The partitions of one member or fixed consumer."""
    order = group.order
    if member not in order:
        raise MemberNotFound(group.name, member)
    return list(partitions_of(order.index(member), len(order), partitions))


def check_commit(
    group: Group, member: str | None, generation: int | None, partitions: Iterable[int], now_us: int
) -> None:
    """Refuse a commit of an old generation, of a stranger, or to a partition of another.

    A member that does not say its generation is taken to commit what it fetched last: refused if a seek came since.
    Without a member the group itself commits: that is for readers that divide the work by other means, and only as
    long as no members are in it.
    """
    group = expire(group, now_us)
    order = group.order
    if member is None and group.members:
        rule = f"it has {len(group.members)} members: commit as one of them"
        raise GroupSizeConflict(group.name, rule)
    if member is not None and member not in order:
        raise MemberNotFound(group.name, member)
    if generation is not None and generation != group.generation:
        raise StaleGeneration(group.name, generation, group.generation)
    known = group.members.get(member or "")
    if generation is None and known is not None and known.read_generation < group.seek_generation:
        raise StaleGeneration(group.name, known.read_generation, group.generation)
    if member is not None:
        for partition in partitions:
            if order[owner_of(partition, len(order))] != member:
                raise PartitionNotOwned(group.name, member, partition)


def _member(group: Group, member: str) -> Member:
    known = group.members.get(member)
    if known is None:
        raise MemberNotFound(group.name, member)
    return known

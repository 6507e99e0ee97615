"""Who is in a group of either protocol: their callers, topics and instances, and the memory that they take.

Groups look things up here instead of among all members. Memory is counted by caller, over all groups: one caller has at
most half of it, so no token keeps another from joining. What is too much raises before anything is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.core.errors import QuotaExceeded
from headrace.core.rights import Caller
from headrace.edge.envelope.byte_budget import ByteBudget
from headrace.edge.groups import unable

# What members of all groups may take; half of it those of one caller.
MEMORY_BYTES_MAX: Final = 256 << 20
# What a member takes beside what it sends, with its share of the group; a topic that it reads; a partition of those.
MEMBER_BYTES: Final = 4 << 10
TOPIC_BYTES: Final = 128
PLACE_BYTES: Final = 256


class GroupMemory:
    """What the members of all groups take, by the caller that brought it."""

    def __init__(self, bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._budget = ByteBudget(bytes_max, 0.0, "", bytes_max // 2)

    @property
    def taken(self) -> int:
        """Bytes of all callers."""
        return self._budget.taken

    def hold(self, caller: str, size: int) -> None:
        """Take memory; raises without room for it."""
        if size > 0 and not self._budget.try_take(size, caller):
            share = f"at most {self._budget.share_max} for one token"
            raise QuotaExceeded("bytes of members of Kafka's groups", share, self._budget.bytes_max)
        if size < 0:
            self.release(caller, -size)

    def release(self, caller: str, size: int) -> None:
        """Give memory back."""
        self._budget.give_back(size, caller)


@dataclass(frozen=True, slots=True)
class Seat:
    """What a member is to the others: `size` is what it sent, in bytes."""

    caller: Caller
    instance_id: str | None = None
    topics: frozenset[str] = frozenset()
    size: int = 0

    @property
    def cost(self) -> int:
        """What it takes in memory."""
        return MEMBER_BYTES + TOPIC_BYTES * len(self.topics) + self.size


@dataclass(slots=True)
class Roster:
    """The seats of a group by member id."""

    memory: GroupMemory = field(default_factory=GroupMemory)
    _seats: dict[str, Seat] = field(default_factory=dict)
    # How many members read a topic, and how many are of a caller.
    _topics: dict[str, int] = field(default_factory=dict)
    _callers: dict[Caller, int] = field(default_factory=dict)
    _instances: dict[str, str] = field(default_factory=dict)
    # Topics that came or went since `changes`, and whether they came.
    _changes: dict[str, bool] = field(default_factory=dict)

    @property
    def topics(self) -> Set[str]:
        """The keys of the topics that any member reads."""
        return self._topics.keys()

    @property
    def callers(self) -> Collection[Caller]:
        """The callers whose members they are."""
        return self._callers.keys()

    def seat(self, member_id: str) -> Seat | None:
        """The seat of a member, or none."""
        return self._seats.get(member_id)

    def instance(self, instance_id: str | None) -> str | None:
        """The id of the static member that has this instance id, or none."""
        return None if instance_id is None else self._instances.get(instance_id)

    def changes(self) -> dict[str, bool]:
        """The topics that came or went since the last call, and whether they came."""
        changes, self._changes = self._changes, {}
        return changes

    def strangers(self, group: str, topics: Collection[str]) -> list[str]:
        """The members whose callers may not read all of these topics."""
        callers = unable(self._callers, group, topics)
        return [member_id for member_id, seat in self._seats.items() if seat.caller in callers] if callers else []

    def put(self, member_id: str, seat: Seat) -> None:
        """Seat a member, or change its seat."""
        before = self._seats.get(member_id)
        if before is not None and before.caller.name == seat.caller.name:
            self.memory.hold(seat.caller.name, seat.cost - before.cost)
        else:
            self.memory.hold(seat.caller.name, seat.cost)
            if before is not None:
                self.memory.release(before.caller.name, before.cost)
        # Those that both have must not be gone in between.
        self._index(member_id, seat)
        if before is not None:
            self._forget(member_id, before, seat.instance_id)
        self._seats[member_id] = seat

    def rename(self, old_id: str, new_id: str) -> None:
        """Give the seat of a static member to its successor."""
        seat = self._seats[new_id] = self._seats.pop(old_id)
        if seat.instance_id is not None:
            self._instances[seat.instance_id] = new_id

    def remove(self, member_id: str) -> None:
        """Free a seat, if there is one."""
        seat = self._seats.pop(member_id, None)
        if seat is not None:
            self._forget(member_id, seat)
            self.memory.release(seat.caller.name, seat.cost)

    def _index(self, member_id: str, seat: Seat) -> None:
        self._callers[seat.caller] = self._callers.get(seat.caller, 0) + 1
        if seat.instance_id is not None:
            self._instances[seat.instance_id] = member_id
        for topic in seat.topics:
            count = self._topics.get(topic, 0)
            self._topics[topic] = count + 1
            if not count:
                self._changes[topic] = True

    def _forget(self, member_id: str, seat: Seat, kept_instance: str | None = None) -> None:
        self._drop(self._callers, seat.caller)
        if seat.instance_id is not None and seat.instance_id != kept_instance:
            self._instances.pop(seat.instance_id, None)
        for topic in seat.topics:
            if self._drop(self._topics, topic):
                self._changes[topic] = False

    @staticmethod
    def _drop(counts: dict[Any, int], key: Any) -> bool:
        """Count one less; whether it was the last."""
        count = counts[key] - 1
        if count:
            counts[key] = count
        else:
            del counts[key]
        return not count

"""A consumer group of Kafka's newer protocol (KIP-848) as a state machine: the server assigns, members reconcile.

Every change of members, of their topics or of the partitions of those begins a new epoch of the group, with a new
target for each member. A member learns its part at its next heartbeat: first what to give up, and only when it has
reported that it owns that no more, what it gains; a partition goes to its next owner once its last one has let it go.
So nobody stops to wait for anybody else. A member is in the epoch of the group once it has given up what it should.

    heartbeat: owned partitions ─► give up ─► reported ─► gain what others have let go ─► epoch of the group

Pure: no clock, no I/O, no randomness. `now` is in seconds of a clock that does not jump. Errors are named as Kafka
names them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.core.rights import ANYONE, Caller
from headrace.protocols.kafka.coordinator.assignment import Owned, Plan
from headrace.protocols.kafka.coordinator.requests import REBALANCE_SECONDS_MAX, GroupError
from headrace.protocols.kafka.coordinator.roster import PLACE_BYTES, Roster, Seat

JOINING: Final = 0
LEAVING: Final = -1
# A static member that will come back: its partitions wait for it.
PAUSING: Final = -2

SESSION_SECONDS: Final = 45.0


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member asked for: topics by name, and those whose whole name matches a regular expression, if any."""

    names: frozenset[str] = frozenset()
    pattern: str = ""
    # Which topics there were, and who asked, when the expression was looked up: the same have the same answer.
    looked_up: tuple[int, Caller] | None = None


@dataclass(slots=True)
class ConsumerMember:
    """A member: what it should own (`target`), was told to own (`assigned`), and was told to give up (`revoking`)."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    rebalance_seconds: float
    # The keys of those that its subscription means at the moment.
    topics: frozenset[str]
    deadline: float
    epoch: int = JOINING
    former_epoch: int = JOINING
    target: frozenset[Owned] = frozenset()
    assigned: frozenset[Owned] = frozenset()
    revoking: frozenset[Owned] = frozenset()
    # When it must have given that up.
    revocation_deadline: float | None = None
    subscription: MemberSubscription = field(default_factory=MemberSubscription)

    @property
    def held(self) -> frozenset[Owned]:
        """What nobody else may be given."""
        return self.assigned | self.revoking


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """What a member sends; what has not changed since its last heartbeat is None. Topics are keys."""

    member_id: str
    epoch: int
    instance_id: str | None
    client_id: str
    host: str
    rebalance_seconds: float
    topics: frozenset[str] | None
    owned: frozenset[Owned] | None
    # Whether it says all again, since it may have missed an answer.
    is_full: bool = False
    subscription: MemberSubscription = field(default_factory=MemberSubscription)
    caller: Caller = ANYONE


@dataclass(slots=True)
class ConsumerGroup:
    """A group whose members are assigned partitions by the server.

    Whoever calls `heartbeat` or `leave` sees to it that a group that is stale is planned, assigned and told (`plan`,
    `assign`, `apply`) before members are told more (`reconcile`).
    """

    id: str
    members_max: int
    roster: Roster = field(default_factory=Roster)
    # Of members, topics and partitions, and the one that targets are of.
    epoch: int = 0
    assignment_epoch: int = 0
    # Whether members or topics have changed since the last plan.
    is_stale: bool = False
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    # Of the topics that members read: number, and how many partitions there are.
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    # Who owns a partition, or has not let it go.
    _holders: dict[Owned, str] = field(default_factory=dict)
    # Whose member was the first, and the memory that partitions take.
    _charged: tuple[str, int] = ("", 0)
    # Nothing is due before.
    _due: float = math.inf

    @property
    def state(self) -> str:
        """The state as Kafka's tools show it."""
        if not self.members:
            return "Empty"
        is_settled = not self.is_stale and all(map(self._is_settled, self.members.values()))
        return "Stable" if is_settled else "Reconciling"

    @property
    def is_unused(self) -> bool:
        """Whether nothing would be lost if it were forgotten."""
        return not self.members

    def has(self, member_id: str) -> bool:
        """Whether this is a member."""
        return member_id in self.members

    def next_deadline(self) -> float | None:
        """When to call `tick`, if nothing happens before: what is due then may have been put off."""
        return None if math.isinf(self._due) else self._due

    def _by(self, deadline: float) -> float:
        self._due = min(self._due, deadline)
        return deadline

    def heartbeat(self, request: ConsumerHeartbeat, now: float) -> ConsumerMember:
        """Join or stay, perhaps with other topics."""
        member = self._joined(request, now) if request.epoch == JOINING else self._known(request)
        if request.topics is not None and request.topics != member.topics:
            self.roster.put(member.id, _seat(request, request.topics))
            member.topics, self.is_stale = request.topics, True
        member.subscription = request.subscription
        member.deadline = self._by(now + SESSION_SECONDS)
        if request.rebalance_seconds > 0:
            # What has not changed is not said again.
            member.rebalance_seconds = min(request.rebalance_seconds, REBALANCE_SECONDS_MAX)
        return member

    def leave(self, member_id: str, instance_id: str | None, epoch: int, now: float) -> None:
        """Let a member go; a static one that will come back keeps its place for its session."""
        member = self._found(member_id, instance_id)
        if epoch == PAUSING and member.instance_id is not None:
            self._let_go(member.revoking)
            member.epoch, member.revoking, member.deadline = PAUSING, frozenset(), self._by(now + SESSION_SECONDS)
            member.revocation_deadline = None
            return
        self.remove([member.id])

    def check_commit(self, member_id: str, epoch: int) -> None:
        """Refuse the offsets of a former member or epoch; without a member only an empty group commits."""
        if not member_id and epoch < 0 and not self.members:
            return
        if epoch != self._found(member_id, None).epoch:
            raise GroupError("stale_member_epoch", member_id)

    def tick(self, now: float) -> list[str]:
        """Let time pass: those who are silent, or do not give up what they should, are removed; which ones."""
        late = [
            each.id
            for each in self.members.values()
            if each.deadline <= now or (each.revocation_deadline is not None and each.revocation_deadline <= now)
        ]
        self.remove(late)
        ends = [each.deadline for each in self.members.values()]
        ends += [end for each in self.members.values() if (end := each.revocation_deadline) is not None]
        self._due = min(ends, default=math.inf)
        return late

    def remove(self, member_ids: Iterable[str]) -> None:
        """Remove members; others may have what they own."""
        for member_id in member_ids:
            member = self.members.pop(member_id)
            self._let_go(member.assigned)
            self._let_go(member.revoking)
            self.roster.remove(member_id)
            self.is_stale = True
        if not self.members:
            self.roster.memory.release(*self._charged)
            self._charged = self._charged[0], 0

    # Members

    def _joined(self, request: ConsumerHeartbeat, now: float) -> ConsumerMember:
        known = self.members.get(request.member_id)
        if known is not None:
            # It has lost what it knew, so it owns nothing; and it no longer pauses.
            self._let_go(known.revoking)
            known.revoking, known.epoch = frozenset(), max(known.epoch, JOINING)
            return known
        former_id = self.roster.instance(request.instance_id)
        former = None if former_id is None else self.members[former_id]
        if former is not None and former.epoch != PAUSING:
            raise GroupError("unreleased_instance_id", request.member_id)
        if former is None and len(self.members) >= self.members_max:
            raise GroupError("group_max_size_reached", request.member_id)
        topics = (request.topics or frozenset()) if former is None else former.topics
        member = ConsumerMember(
            request.member_id,
            request.instance_id,
            request.client_id,
            request.host,
            SESSION_SECONDS,
            topics,
            now,
        )
        self._charged = self._charged[0] or request.caller.name, self._charged[1]
        if former is None:
            self.roster.put(member.id, _seat(request, topics))
            self.is_stale = True
        else:
            self.roster.put(former.id, _seat(request, topics))
            self.roster.rename(former.id, member.id)
            member.target, member.assigned = former.target, former.assigned
            self._holders.update(dict.fromkeys(member.assigned, member.id))
            del self.members[former.id]
        self.members[member.id] = member
        return member

    def _known(self, request: ConsumerHeartbeat) -> ConsumerMember:
        member = self._found(request.member_id, request.instance_id)
        # An answer may have been lost: then the member is an epoch behind.
        if request.epoch not in (member.epoch, member.former_epoch) or member.epoch == PAUSING:
            raise GroupError("fenced_member_epoch", member.id)
        return member

    def _found(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            is_taken = self.roster.instance(instance_id) is not None
            raise GroupError("fenced_instance_id" if is_taken else "unknown_member_id", member_id)
        return member

    # Assignments

    def plan(self, sizes: Mapping[str, tuple[int, int] | None]) -> Plan | None:
        """Begin a new epoch, if members, topics or partitions have changed: what is to be assigned.

        `sizes` are those of topics that members read, None for those that do not exist.
        """
        present = {topic: size for topic in self.roster.topics if (size := sizes.get(topic)) is not None}
        if not self.is_stale and present == self.sizes:
            return None
        caller, charged = self._charged
        cost = PLACE_BYTES * sum(count for _, count in present.values())
        self.roster.memory.hold(caller, cost - charged)
        self._charged = caller, cost
        # Topics may have been added while sizes were looked up.
        self.is_stale = not self.roster.topics <= sizes.keys()
        self.epoch, self.sizes = self.epoch + 1, present
        members = self.members.values()
        return Plan(self.epoch, {each.id: each.topics for each in members}, present, {e.id: e.target for e in members})

    def apply(self, plan: Plan, targets: Mapping[str, frozenset[Owned]]) -> None:
        """Give members the targets of a plan; for those who came or left meanwhile there has to be another."""
        for member_id, target in targets.items():
            member = self.members.get(member_id)
            if member is None:
                self.is_stale = True
            else:
                member.target = target
        self.assignment_epoch = plan.epoch

    def reconcile(self, member_id: str, request: ConsumerHeartbeat, now: float) -> tuple[ConsumerMember, bool]:
        """Take the next step of a member towards its target; whether it has to be told its assignment."""
        member = self._found(member_id, request.instance_id)
        before = member.assigned
        if request.owned is not None and member.revoking:
            # Sent after the member was told what to give up.
            self._let_go(member.revoking - request.owned)
            member.revoking &= request.owned
        if not self._is_settled(member):
            self._step(member, now)
        is_full = request.is_full or request.epoch == JOINING
        return member, is_full or member.assigned is not before

    def _is_settled(self, member: ConsumerMember) -> bool:
        """Whether nothing is left to do for a member: within an epoch it is assigned nothing but its target."""
        is_complete = not member.revoking and len(member.assigned) == len(member.target)
        return is_complete and member.epoch == self.assignment_epoch

    def _step(self, member: ConsumerMember, now: float) -> None:
        lost = member.assigned - member.target
        if lost:
            member.revoking |= lost
            member.assigned -= lost
        if member.revoking:
            if member.revocation_deadline is None:
                member.revocation_deadline = self._by(now + member.rebalance_seconds)
            return
        member.revocation_deadline = None
        gained = {place for place in member.target - member.assigned if place not in self._holders}
        if gained:
            self._holders.update(dict.fromkeys(gained, member.id))
            assigned = member.assigned | gained
            # Kept once, as most of the time.
            member.assigned = member.target if len(assigned) == len(member.target) else assigned
        if member.epoch != self.assignment_epoch:
            member.former_epoch, member.epoch = member.epoch, self.assignment_epoch

    def _let_go(self, places: Iterable[Owned]) -> None:
        for place in places:
            del self._holders[place]


def _seat(request: ConsumerHeartbeat, topics: frozenset[str]) -> Seat:
    size = len(request.member_id) + len(request.client_id) + len(request.subscription.pattern)
    return Seat(request.caller, request.instance_id, topics, size)

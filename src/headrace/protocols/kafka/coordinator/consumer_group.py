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

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.protocols.kafka.coordinator.group import GroupError

JOINING: Final = 0
LEAVING: Final = -1
# A static member that will come back: its partitions wait for it.
PAUSING: Final = -2

SESSION_SECONDS: Final = 45.0


class Owned(NamedTuple):
    """A partition of a topic, which is known by its number: another topic of its name is another one."""

    topic_id: int
    partition: int


class MemberSubscription(NamedTuple):
    """What a member asked for: topics by name, and those whose whole name matches a regular expression, if any."""

    names: frozenset[str] = frozenset()
    pattern: str = ""


@dataclass(slots=True)
class ConsumerMember:
    """A member: what it should own (`target`), was told to own (`assigned`), and was told to give up (`revoking`)."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    rebalance_seconds: float
    topics: frozenset[str]
    deadline: float
    epoch: int = JOINING
    former_epoch: int = JOINING
    target: frozenset[Owned] = frozenset()
    assigned: frozenset[Owned] = frozenset()
    revoking: frozenset[Owned] = frozenset()
    # When it must have given that up.
    revocation_deadline: float | None = None
    # `topics` are what it means at the moment.
    subscription: MemberSubscription = field(default_factory=MemberSubscription)

    @property
    def held(self) -> frozenset[Owned]:
        """What nobody else may be given."""
        return self.assigned | self.revoking


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """What a member sends; what has not changed since its last heartbeat is None."""

    member_id: str
    epoch: int
    instance_id: str | None
    client_id: str
    host: str
    rebalance_seconds: float
    topics: frozenset[str] | None
    owned: frozenset[Owned] | None


@dataclass(slots=True)
class ConsumerGroup:
    """A group whose members are assigned partitions by the server."""

    id: str
    members_max: int
    epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    # Of the topics that members read: number, and how many partitions there are.
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The state as Kafka's tools show it."""
        if not self.members:
            return "Empty"
        is_settled = all(each.epoch == self.epoch and each.assigned == each.target for each in self.members.values())
        return "Stable" if is_settled else "Reconciling"

    def topics(self) -> set[str]:
        """The topics that any member reads."""
        return {topic for member in self.members.values() for topic in member.topics}

    def next_deadline(self) -> float | None:
        """When `tick` has something to do, if nothing happens before."""
        ends = [each.deadline for each in self.members.values()]
        ends += [end for each in self.members.values() if (end := each.revocation_deadline) is not None]
        return min(ends, default=None)

    def heartbeat(
        self, request: ConsumerHeartbeat, sizes: Mapping[str, tuple[int, int] | None], now: float
    ) -> tuple[ConsumerMember, bool]:
        """Join, stay or reconcile; the member, and whether it has to be told its assignment.

        `sizes` are those of topics that members read, None for those that do not exist. Others are as they were.
        """
        member = self._joined(request, now) if request.epoch == JOINING else self._known(request)
        member.deadline = now + SESSION_SECONDS
        member.rebalance_seconds = request.rebalance_seconds if request.rebalance_seconds > 0 else SESSION_SECONDS
        if request.topics is not None and request.topics != member.topics:
            member.topics = request.topics
            self._begin_epoch()
        known = {name: sizes[name] if name in sizes else self.sizes.get(name) for name in self.topics()}
        present = {name: size for name, size in known.items() if size is not None}
        if present != self.sizes:
            self.sizes = present
            self._begin_epoch()
        if request.owned is not None:
            # Sent after the member was told what to give up.
            member.revoking &= request.owned
        before = member.assigned
        self._reconcile(member, now)
        is_full = request.epoch == JOINING or request.topics is not None
        return member, is_full or member.assigned != before

    def leave(self, member_id: str, instance_id: str | None, epoch: int, now: float) -> None:
        """Let a member go; a static one that will come back keeps its place for its session."""
        member = self._found(member_id, instance_id)
        if epoch == PAUSING and member.instance_id is not None:
            member.epoch, member.revoking, member.deadline = PAUSING, frozenset(), now + SESSION_SECONDS
            member.revocation_deadline = None
            return
        self._remove([member.id])

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
        self._remove(late)
        return late

    # Members

    def _joined(self, request: ConsumerHeartbeat, now: float) -> ConsumerMember:
        known = self.members.get(request.member_id)
        if known is not None:
            # It has lost what it knew, so it owns nothing.
            known.revoking = frozenset()
            return known
        former = self._static(request.instance_id)
        if former is not None and former.epoch != PAUSING:
            raise GroupError("unreleased_instance_id", request.member_id)
        if former is None and len(self.members) >= self.members_max:
            raise GroupError("group_max_size_reached", request.member_id)
        member = ConsumerMember(
            request.member_id,
            request.instance_id,
            request.client_id,
            request.host,
            request.rebalance_seconds,
            frozenset() if former is None else former.topics,
            now + SESSION_SECONDS,
        )
        if former is not None:
            member.target, member.assigned = former.target, former.assigned
            del self.members[former.id]
        self.members[member.id] = member
        if former is None:
            self._begin_epoch()
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
            is_taken = self._static(instance_id) is not None
            raise GroupError("fenced_instance_id" if is_taken else "unknown_member_id", member_id)
        return member

    def _static(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        return next((each for each in self.members.values() if each.instance_id == instance_id), None)

    def _remove(self, member_ids: list[str]) -> None:
        for member_id in member_ids:
            del self.members[member_id]
        if member_ids:
            self._begin_epoch()

    # Assignments

    def _begin_epoch(self) -> None:
        self.epoch += 1
        targets = assign(
            {each.id: each.topics for each in self.members.values()},
            self.sizes,
            {each.id: each.target for each in self.members.values()},
        )
        for member in self.members.values():
            member.target = targets[member.id]

    def _reconcile(self, member: ConsumerMember, now: float) -> None:
        """Take the next step of a member towards its target."""
        member.revoking |= member.assigned - member.target
        member.assigned &= member.target
        if member.revoking:
            if member.revocation_deadline is None:
                member.revocation_deadline = now + member.rebalance_seconds
            return
        member.revocation_deadline = None
        taken = {place for other in self.members.values() if other is not member for place in other.held}
        member.assigned |= member.target - taken
        if member.epoch != self.epoch:
            member.former_epoch, member.epoch = member.epoch, self.epoch


def assign(
    topics: Mapping[str, Set[str]], sizes: Mapping[str, tuple[int, int]], present: Mapping[str, Set[Owned]]
) -> dict[str, frozenset[Owned]]:
    """Partitions for each member, evenly among those who read the topic; each keeps what it has as far as that goes."""
    readers_of = {name: [member for member, read in topics.items() if name in read] for name in sorted(sizes)}
    places = {
        Owned(topic_id, partition): readers
        for name, readers in readers_of.items()
        if readers
        for topic_id, count in [sizes[name]]
        for partition in range(count)
    }
    share, extra = divmod(len(places), len(topics)) if topics else (0, 0)
    found: dict[str, set[Owned]] = {member: set() for member in topics}
    owners = {place: member for member, owned in present.items() for place in owned}
    left = []
    for place, readers in places.items():
        owner = owners.get(place)
        if owner is not None and owner in readers and len(found[owner]) < share:
            found[owner].add(place)
        elif owner is not None and owner in readers and len(found[owner]) == share and extra > 0:
            extra -= 1
            found[owner].add(place)
        else:
            left.append(place)
    for place in left:
        found[min(places[place], key=lambda member: len(found[member]))].add(place)
    return {member: frozenset(owned) for member, owned in found.items()}

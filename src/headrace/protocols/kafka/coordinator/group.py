"""A consumer group of Kafka's classic protocol as a state machine: requests and the time go in, answers come out.

    Empty ──join──► PreparingRebalance ──all joined, or time is up──► CompletingRebalance ──leader syncs──► Stable
      ▲                     ▲ a member joins, leaves, is late or changes what it supports │                   │
      └──── all left ───────┴──────────────────────────────────────────────────────────────┴───────────────────┘

Members send JoinGroup and wait until all of them have; one of them, the leader, gets the list of all. Each then sends
SyncGroup, the leader with the assignment for everybody. A new generation begins with each round. The assignors (range,
cooperative-sticky, …) run in the clients; here assignments and metadata are bytes without a meaning.

Pure: no clock, no I/O, no randomness. `now` is in seconds of a clock that does not jump, new ids come as arguments, and
answers to waiting members are returned as effects. Errors are named as Kafka names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

SESSION_SECONDS_MIN: Final = 0.1
SESSION_SECONDS_MAX: Final = 86_400.0


class State(StrEnum):
    """The states of a group, named as Kafka's tools show them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class GroupError(Exception):
    """A request that is refused, with the name of Kafka's error; `member_id` is the one to come back with."""

    def __init__(self, error: str, member_id: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.member_id = member_id


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request; protocols are what the member supports, by preference, each with its metadata."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_seconds: float
    rebalance_seconds: float
    protocol_type: str
    protocols: Mapping[str, bytes]


@dataclass(slots=True)
class KafkaMember:
    """A member, with the time when its session ends and whether it waits for an answer."""

    id: str
    joined: Join
    deadline: float
    assignment: bytes = b""
    is_joining: bool = False
    is_syncing: bool = False


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """What a waiting JoinGroup is answered; only the leader gets the members, with their metadata."""

    member_id: str
    error: str = "none"
    generation: int = -1
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: Sequence[tuple[str, str | None, bytes]] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """What a waiting SyncGroup is answered."""

    member_id: str
    error: str = "none"
    protocol_type: str = ""
    protocol: str = ""
    assignment: bytes = b""


Effect = JoinAnswer | SyncAnswer


@dataclass(slots=True)
class ClassicGroup:
    """A group. Every method that may answer waiting members returns their answers."""

    id: str
    # How long a new group waits for more members.
    delay_seconds: float
    members_max: int
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, KafkaMember] = field(default_factory=dict)
    # Ids that were given out and have not joined yet, and until when they may.
    pending: dict[str, float] = field(default_factory=dict)
    # When the present phase of a rebalance ends, even if members are missing.
    phase_deadline: float = 0.0
    is_first_round: bool = False

    @property
    def is_unused(self) -> bool:
        """Whether nothing would be lost if it were forgotten."""
        return not self.members and not self.pending

    def next_deadline(self) -> float | None:
        """When `tick` has something to do, if nothing happens before."""
        deadlines = list(self.pending.values())
        if self.state in (State.PREPARING, State.COMPLETING):
            deadlines.append(self.phase_deadline)
        deadlines += [member.deadline for member in self.members.values() if not _is_waiting(member)]
        return min(deadlines, default=None)

    # Requests

    def join(self, request: Join, new_id: str, needs_id: bool, now: float) -> tuple[str, list[Effect]]:
        """Join, or join again: the id of the member, whose answer comes as an effect, now or later.

        With `needs_id` a new member is first given its id, as an error, and comes back with it.
        """
        self._check_join(request)
        member_id = request.member_id
        effects: list[Effect] = []
        static, leader = self._static(request.instance_id), self.leader
        if not member_id:
            if static is not None:
                effects += self._replace(static, new_id)
            elif needs_id and request.instance_id is None:
                self.pending[new_id] = now + request.session_seconds
                raise GroupError("member_id_required", new_id)
            member_id = new_id
        elif static is not None and static.id != member_id:
            raise GroupError("fenced_instance_id", member_id)
        elif member_id not in self.members and self.pending.pop(member_id, None) is None:
            raise GroupError("unknown_member_id", member_id)
        known = self.members.get(member_id)
        is_new_life = False
        if known is None:
            if len(self.members) >= self.members_max:
                raise GroupError("group_max_size_reached", member_id)
            self.members[member_id] = known = KafkaMember(member_id, request, now + request.session_seconds)
            is_changed = True
        else:
            is_new_life = static is not None and not request.member_id
            is_changed = known.joined.protocols != request.protocols or (member_id == self.leader and not is_new_life)
        known.joined = replace(request, member_id=member_id)
        known.deadline = now + request.session_seconds
        if not is_changed and self.state == State.STABLE and is_new_life:
            # A static member that was restarted takes its assignment back, and nobody else is bothered. It is told the
            # former leader's id, so that it does not assign again.
            answer = JoinAnswer(member_id, "none", self.generation, self.protocol_type, self.protocol, leader)
            return member_id, [*effects, answer]
        if not is_changed and not is_new_life and self.state in (State.STABLE, State.COMPLETING):
            return member_id, [*effects, self._joined(known)]
        known.is_joining = True
        if self.state != State.PREPARING:
            effects += self._prepare(now)
        self.protocol_type = request.protocol_type
        return member_id, effects + self._try_complete(now)

    def sync(
        self, member_id: str, instance_id: str | None, generation: int, assignments: Mapping[str, bytes], now: float
    ) -> list[Effect]:
        """Ask for the assignment; the leader brings that of everybody."""
        member = self._member(member_id, instance_id, generation)
        member.deadline = now + member.joined.session_seconds
        if self.state == State.PREPARING:
            raise GroupError("rebalance_in_progress", member_id)
        if self.state == State.STABLE:
            return [self._synced(member)]
        member.is_syncing = True
        if member_id != self.leader:
            return []
        for each in self.members.values():
            each.assignment = assignments.get(each.id, b"")
        self.state = State.STABLE
        return [self._synced(each) for each in self.members.values() if each.is_syncing]

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Keep a member in; it is told if it has to join again."""
        member = self._member(member_id, instance_id, generation)
        member.deadline = now + member.joined.session_seconds
        if self.state == State.PREPARING:
            raise GroupError("rebalance_in_progress", member_id)

    def leave(self, member_id: str, instance_id: str | None, now: float) -> list[Effect]:
        """Let a member go; a static one may be named by its instance alone."""
        static = self._static(instance_id)
        if static is not None and not member_id:
            member_id = static.id
        if self.pending.pop(member_id, None) is not None:
            return self._try_complete(now)
        if static is not None and static.id != member_id:
            raise GroupError("fenced_instance_id", member_id)
        if member_id not in self.members:
            raise GroupError("unknown_member_id", member_id)
        return self._remove([member_id], now)

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Refuse the offsets of a former member; without a member only an empty group commits."""
        if not self.members and generation < 0:
            return
        member = self._member(member_id, instance_id, generation)
        member.deadline = now + member.joined.session_seconds
        if self.state == State.COMPLETING:
            raise GroupError("rebalance_in_progress", member_id)

    def tick(self, now: float) -> list[Effect]:
        """Let time pass: late members are removed, and a phase that has waited long enough ends."""
        self.pending = {member_id: deadline for member_id, deadline in self.pending.items() if deadline > now}
        late = [member.id for member in self.members.values() if member.deadline <= now and not _is_waiting(member)]
        effects = self._remove(late, now) if late else []
        if self.state == State.COMPLETING and self.phase_deadline <= now:
            missing = [member.id for member in self.members.values() if not member.is_syncing]
            effects += self._remove(missing, now)
        return effects + self._try_complete(now)

    # Rounds

    def _prepare(self, now: float) -> list[Effect]:
        """Begin a round: everybody has to join again."""
        effects = [self._sync_refused(member) for member in self.members.values() if member.is_syncing]
        self.is_first_round = self.state == State.EMPTY
        self.state = State.PREPARING
        self.phase_deadline = now + (self.delay_seconds if self.is_first_round else self._patience())
        return effects

    def _patience(self) -> float:
        return max((member.joined.rebalance_seconds for member in self.members.values()), default=0.0)

    def _try_complete(self, now: float) -> list[Effect]:
        if self.state != State.PREPARING:
            return []
        have_all_joined = not self.pending and all(member.is_joining for member in self.members.values())
        if now < self.phase_deadline and (self.is_first_round or not have_all_joined):
            return []
        for member in [each for each in self.members.values() if not each.is_joining]:
            # A static member may come back under its name until its session ends.
            if member.joined.instance_id is None:
                del self.members[member.id]
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = State.EMPTY, "", ""
            return []
        self.state = State.COMPLETING
        self.phase_deadline = now + self._patience()
        self.protocol = self._vote()
        if self.leader not in self.members or not self.members[self.leader].is_joining:
            joining = [member.id for member in self.members.values() if member.is_joining]
            self.leader = joining[0] if joining else next(iter(self.members))
        for member in self.members.values():
            member.assignment = b""
            if member.is_joining:
                member.deadline = now + member.joined.session_seconds
        return [self._joined(member) for member in self.members.values() if member.is_joining]

    def _vote(self) -> str:
        """The protocol that most members prefer among those that all support."""
        common = self._common()
        votes = [next(name for name in member.joined.protocols if name in common) for member in self.members.values()]
        return max(dict.fromkeys(votes), key=votes.count)

    def _common(self, without: str = "") -> set[str]:
        """What all members support, perhaps without one of them; nothing if there are none."""
        supported = [set(member.joined.protocols) for member in self.members.values() if member.id != without]
        return set.intersection(*supported) if supported else set()

    def _remove(self, member_ids: Sequence[str], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for member_id in member_ids:
            member = self.members.pop(member_id)
            if member.is_joining:
                effects.append(JoinAnswer(member_id, "unknown_member_id"))
            if member.is_syncing:
                effects.append(SyncAnswer(member_id, "unknown_member_id"))
        if self.state in (State.STABLE, State.COMPLETING):
            effects += self._prepare(now)
        return effects + self._try_complete(now)

    def _replace(self, old: KafkaMember, new_id: str) -> list[Effect]:
        """Give the place of a static member to its successor."""
        del self.members[old.id]
        effects: list[Effect] = []
        if old.is_joining:
            effects.append(JoinAnswer(old.id, "fenced_instance_id"))
        if old.is_syncing:
            effects.append(SyncAnswer(old.id, "fenced_instance_id"))
        if self.leader == old.id:
            self.leader = new_id
        self.members[new_id] = KafkaMember(new_id, old.joined, old.deadline, old.assignment)
        return effects

    # Checks and answers

    def _check_join(self, request: Join) -> None:
        if not SESSION_SECONDS_MIN <= request.session_seconds <= SESSION_SECONDS_MAX:
            raise GroupError("invalid_session_timeout", request.member_id)
        static = self._static(request.instance_id)
        others = [member_id for member_id in self.members if member_id != (static.id if static else request.member_id)]
        without = static.id if static is not None else request.member_id
        is_common = not others or bool(self._common(without) & set(request.protocols))
        is_of_type = not others or request.protocol_type == self.protocol_type
        if not request.protocols or not request.protocol_type or not is_common or not is_of_type:
            raise GroupError("inconsistent_group_protocol", request.member_id)

    def _static(self, instance_id: str | None) -> KafkaMember | None:
        if instance_id is None:
            return None
        return next((each for each in self.members.values() if each.joined.instance_id == instance_id), None)

    def _member(self, member_id: str, instance_id: str | None, generation: int) -> KafkaMember:
        static = self._static(instance_id)
        if static is not None and static.id != member_id:
            raise GroupError("fenced_instance_id", member_id)
        member = self.members.get(member_id)
        if member is None:
            raise GroupError("unknown_member_id", member_id)
        if generation != self.generation:
            raise GroupError("illegal_generation", member_id)
        return member

    def _joined(self, member: KafkaMember) -> JoinAnswer:
        member.is_joining = False
        everyone: Sequence[tuple[str, str | None, bytes]] = ()
        if member.id == self.leader:
            everyone = [
                (each.id, each.joined.instance_id, each.joined.protocols[self.protocol])
                for each in self.members.values()
            ]
        return JoinAnswer(member.id, "none", self.generation, self.protocol_type, self.protocol, self.leader, everyone)

    def _synced(self, member: KafkaMember) -> SyncAnswer:
        member.is_syncing = False
        return SyncAnswer(member.id, "none", self.protocol_type, self.protocol, member.assignment)

    def _sync_refused(self, member: KafkaMember) -> Effect:
        member.is_syncing = False
        return SyncAnswer(member.id, "rebalance_in_progress")


def _is_waiting(member: KafkaMember) -> bool:
    """Whether a member waits for this server, so that it cannot send heartbeats."""
    return member.is_joining or member.is_syncing

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

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.protocols.kafka.coordinator.requests import (
    ASSIGNMENT_BYTES_MAX,
    PROTOCOLS_MAX,
    REBALANCE_SECONDS_MAX,
    SESSION_SECONDS_MAX,
    SESSION_SECONDS_MIN,
    Effect,
    GroupError,
    Join,
    JoinAnswer,
    SyncAnswer,
)
from headrace.protocols.kafka.coordinator.roster import Roster, Seat


class State(StrEnum):
    """The states of a group, named as Kafka's tools show them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class KafkaMember:
    """A member, with the time when its session ends."""

    id: str
    joined: Join
    deadline: float
    assignment: bytes = b""


@dataclass(slots=True)
class ClassicGroup:
    """A group. Every method that may answer waiting members returns their answers."""

    id: str
    # How long a new group waits for more members.
    delay_seconds: float
    members_max: int
    roster: Roster = field(default_factory=Roster)
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, KafkaMember] = field(default_factory=dict)
    # Ids that were given out and have not joined yet, and until when they may. They have seats too.
    pending: dict[str, float] = field(default_factory=dict)
    # Members that wait for the end of a round, and for their assignment.
    joining: dict[str, None] = field(default_factory=dict)
    syncing: dict[str, None] = field(default_factory=dict)
    # When the present phase of a rebalance ends, even if members are missing.
    phase_deadline: float = 0.0
    is_first_round: bool = False
    # How many members support a protocol.
    _supported: Counter[str] = field(default_factory=Counter)
    # Who brought the assignments, and their size.
    _assigned: tuple[str, int] = ("", 0)
    # Nothing is due before.
    _due: float = math.inf

    @property
    def is_unused(self) -> bool:
        """Whether nothing would be lost if it were forgotten."""
        return not self.members and not self.pending

    def has(self, member_id: str) -> bool:
        """Whether this is a member, or an id that was given out."""
        return member_id in self.members or member_id in self.pending

    def next_deadline(self) -> float | None:
        """When to call `tick`, if nothing happens before: what is due then may have been put off."""
        return None if math.isinf(self._due) else self._due

    def _by(self, deadline: float) -> float:
        self._due = min(self._due, deadline)
        return deadline

    # Requests

    def join(self, request: Join, new_id: str, needs_id: bool, now: float) -> tuple[str, list[Effect]]:
        """Join, or join again: the id of the member, whose answer comes as an effect, now or later.

        With `needs_id` a new member is first given its id, as an error, and comes back with it.
        """
        self._check_join(request)
        member_id = request.member_id
        static, leader = self._static(request.instance_id), self.leader
        if not member_id and static is None and needs_id and request.instance_id is None:
            self._check_count(new_id)
            self.roster.put(new_id, Seat(request.caller, None, request.topics))
            self.pending[new_id] = self._by(now + request.session_seconds)
            raise GroupError("member_id_required", new_id)
        if member_id and static is not None and static.id != member_id:
            raise GroupError("fenced_instance_id", member_id)
        if member_id and not self.has(member_id):
            raise GroupError("unknown_member_id", member_id)
        is_new_life = static is not None and not member_id
        member_id = member_id or new_id
        effects: list[Effect] = []
        known = static if is_new_life else self.members.get(member_id)
        if known is None:
            self._check_count(member_id)
            self.roster.put(member_id, request.seat)
            self.pending.pop(member_id, None)
            self.members[member_id] = known = KafkaMember(member_id, request, 0.0)
            self._support(request.protocols, 1)
            is_changed = True
        else:
            self.roster.put(known.id, request.seat)
            if is_new_life:
                effects += self._replace(known, new_id)
                known = self.members[new_id]
            is_changed = known.joined.protocols != request.protocols or (member_id == self.leader and not is_new_life)
            self._support(request.protocols, 1)
            self._support(known.joined.protocols, -1)
        known.joined = replace(request, member_id=member_id)
        self._renew(known, now)
        if not is_changed and self.state == State.STABLE and is_new_life:
            # A static member that was restarted takes its assignment back, and nobody else is bothered. It is told the
            # former leader's id, so that it does not assign again.
            answer = JoinAnswer(member_id, "none", self.generation, self.protocol_type, self.protocol, leader)
            return member_id, [*effects, answer]
        if not is_changed and not is_new_life and self.state in (State.STABLE, State.COMPLETING):
            return member_id, [*effects, self._joined(known)]
        self.joining[member_id] = None
        if self.state != State.PREPARING:
            effects += self._prepare(now)
        self.protocol_type = request.protocol_type
        return member_id, effects + self._try_complete(now)

    def sync(
        self, member_id: str, instance_id: str | None, generation: int, assignments: Mapping[str, bytes], now: float
    ) -> list[Effect]:
        """Ask for the assignment; the leader brings that of everybody."""
        member = self._member(member_id, instance_id, generation)
        if self.state == State.COMPLETING and member_id == self.leader:
            self._assign(member.joined.caller.name, assignments)
        self._renew(member, now)
        if self.state == State.PREPARING:
            raise GroupError("rebalance_in_progress", member_id)
        if self.state == State.STABLE:
            return [self._synced(member)]
        self.syncing[member_id] = None
        if member_id != self.leader:
            return []
        self.state = State.STABLE
        waiting = [self.members[each] for each in self.syncing]
        self.syncing.clear()
        for each in waiting:
            self._renew(each, now)
        return [self._synced(each) for each in waiting]

    def _assign(self, caller: str, assignments: Mapping[str, bytes]) -> None:
        given = {member_id: assignments.get(member_id, b"") for member_id in self.members}
        if max(map(len, given.values())) > ASSIGNMENT_BYTES_MAX:
            raise GroupError("invalid_request", self.leader)
        size = sum(map(len, given.values()))
        self.roster.memory.hold(caller, size)
        self._assigned = caller, size
        for member_id, assignment in given.items():
            self.members[member_id].assignment = assignment

    def _forget_assignments(self) -> None:
        self.roster.memory.release(*self._assigned)
        self._assigned = "", 0
        for member in self.members.values():
            member.assignment = b""

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Keep a member in; it is told if it has to join again."""
        member = self._member(member_id, instance_id, generation)
        self._renew(member, now)
        if self.state == State.PREPARING:
            raise GroupError("rebalance_in_progress", member_id)

    def leave(self, leavers: Sequence[tuple[str, str | None]], now: float) -> tuple[list[str], list[Effect]]:
        """Let members go, in one change; static ones may be named by their instance alone. The error of each."""
        errors: list[str] = []
        leaving: dict[str, None] = {}
        for member_id, instance_id in leavers:
            static = self.roster.instance(instance_id)
            named = member_id or static or ""
            if static is not None and static != named:
                errors.append("fenced_instance_id")
            elif named in leaving or not self.has(named):
                errors.append("unknown_member_id")
            else:
                leaving[named] = None
                errors.append("none")
        return errors, self.remove(leaving, now)

    def remove(self, member_ids: Collection[str], now: float) -> list[Effect]:
        """Remove members, and ids that were given out."""
        before = len(self.members)
        effects = [effect for member_id in member_ids for effect in self._take_out(member_id)]
        if len(self.members) < before and self.state in (State.STABLE, State.COMPLETING):
            effects += self._prepare(now)
        return effects + self._try_complete(now)

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Refuse the offsets of a former member; without a member only an empty group commits."""
        if not self.members and generation < 0:
            return
        member = self._member(member_id, instance_id, generation)
        self._renew(member, now)
        if self.state == State.COMPLETING:
            raise GroupError("rebalance_in_progress", member_id)

    def tick(self, now: float) -> list[Effect]:
        """Let time pass: late members are removed, and a phase that has waited long enough ends."""
        late = [member_id for member_id, deadline in self.pending.items() if deadline <= now]
        late += [each.id for each in self.members.values() if each.deadline <= now and not self._is_waiting(each)]
        effects = self.remove(late, now) if late else []
        if self.state == State.COMPLETING and self.phase_deadline <= now:
            effects += self.remove([each for each in self.members if each not in self.syncing], now)
        effects += self._try_complete(now)
        self._due = min(self._deadlines(), default=math.inf)
        return effects

    def _deadlines(self) -> Iterator[float]:
        yield from self.pending.values()
        if self.state in (State.PREPARING, State.COMPLETING):
            yield self.phase_deadline
        for member in self.members.values():
            if not self._is_waiting(member):
                yield member.deadline

    def _is_waiting(self, member: KafkaMember) -> bool:
        """Whether a member waits for this server, so that it cannot send heartbeats."""
        return member.id in self.joining or member.id in self.syncing

    # Rounds

    def _prepare(self, now: float) -> list[Effect]:
        """Begin a round: everybody has to join again."""
        effects: list[Effect] = []
        for member_id in self.syncing:
            self._renew(self.members[member_id], now)
            effects.append(SyncAnswer(member_id, "rebalance_in_progress"))
        self.syncing.clear()
        self.is_first_round = self.state == State.EMPTY
        self.state = State.PREPARING
        self.phase_deadline = self._by(now + (self.delay_seconds if self.is_first_round else self._patience()))
        return effects

    def _patience(self) -> float:
        longest = max((member.joined.rebalance_seconds for member in self.members.values()), default=0.0)
        return min(longest, REBALANCE_SECONDS_MAX)

    def _try_complete(self, now: float) -> list[Effect]:
        if self.state != State.PREPARING:
            return []
        have_all_joined = not self.pending and len(self.joining) == len(self.members)
        if now < self.phase_deadline and (self.is_first_round or not have_all_joined):
            return []
        for member in [each for each in self.members.values() if each.id not in self.joining]:
            # A static member may come back under its name until its session ends.
            if member.joined.instance_id is None:
                self._take_out(member.id)
        self.generation += 1
        self._forget_assignments()
        if not self.members:
            self.state, self.protocol, self.leader = State.EMPTY, "", ""
            return []
        self.state = State.COMPLETING
        self.phase_deadline = self._by(now + self._patience())
        self.protocol = self._vote()
        joining = [member for member in self.members.values() if member.id in self.joining]
        if self.leader not in self.joining:
            self.leader = joining[0].id if joining else next(iter(self.members))
        self.joining.clear()
        for member in joining:
            self._renew(member, now)
        return [self._joined(member) for member in joining]

    def _vote(self) -> str:
        """The protocol that most members prefer among those that all support."""
        common = {name for name, count in self._supported.items() if count == len(self.members)}
        votes = Counter(
            next(name for name in member.joined.protocols if name in common) for member in self.members.values()
        )
        return max(votes, key=votes.__getitem__)

    def _take_out(self, member_id: str) -> list[Effect]:
        """Remove a member or an id that was given out; what it waits for is answered."""
        self.roster.remove(member_id)
        if self.pending.pop(member_id, None) is not None:
            return []
        self._support(self.members.pop(member_id).joined.protocols, -1)
        return self._stop_waiting(member_id, "unknown_member_id")

    def _stop_waiting(self, member_id: str, error: str) -> list[Effect]:
        effects: list[Effect] = []
        if member_id in self.joining:
            del self.joining[member_id]
            effects.append(JoinAnswer(member_id, error))
        if member_id in self.syncing:
            del self.syncing[member_id]
            effects.append(SyncAnswer(member_id, error))
        return effects

    def _replace(self, old: KafkaMember, new_id: str) -> list[Effect]:
        """Give the place of a static member to its successor."""
        effects = self._stop_waiting(old.id, "fenced_instance_id")
        del self.members[old.id]
        if self.leader == old.id:
            self.leader = new_id
        self.members[new_id] = KafkaMember(new_id, old.joined, old.deadline, old.assignment)
        self.roster.rename(old.id, new_id)
        return effects

    def _renew(self, member: KafkaMember, now: float) -> None:
        """Begin the session of a member anew."""
        member.deadline = self._by(now + member.joined.session_seconds)

    def _support(self, protocols: Iterable[str], change: int) -> None:
        """Count the members that support each protocol."""
        for name in protocols:
            self._supported[name] += change
            if not self._supported[name]:
                del self._supported[name]

    # Checks and answers

    def _check_join(self, request: Join) -> None:
        if not SESSION_SECONDS_MIN <= request.session_seconds <= SESSION_SECONDS_MAX:
            raise GroupError("invalid_session_timeout", request.member_id)
        if len(request.protocols) > PROTOCOLS_MAX:
            raise GroupError("invalid_request", request.member_id)
        own = self._static(request.instance_id) or self.members.get(request.member_id)
        others = len(self.members) - (own is not None)
        mine = () if own is None else own.joined.protocols
        is_common = not others or any(self._supported[name] - (name in mine) == others for name in request.protocols)
        is_of_type = not others or request.protocol_type == self.protocol_type
        if not request.protocols or not request.protocol_type or not is_common or not is_of_type:
            raise GroupError("inconsistent_group_protocol", request.member_id)

    def _check_count(self, member_id: str) -> None:
        """Refuse one member too many; ids that were given out count."""
        if len(self.members) + len(self.pending) - (member_id in self.pending) >= self.members_max:
            raise GroupError("group_max_size_reached", member_id)

    def _static(self, instance_id: str | None) -> KafkaMember | None:
        member_id = self.roster.instance(instance_id)
        return None if member_id is None else self.members[member_id]

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
        everyone: Sequence[tuple[str, str | None, bytes]] = ()
        if member.id == self.leader:
            everyone = [
                (each.id, each.joined.instance_id, each.joined.protocols[self.protocol])
                for each in self.members.values()
            ]
        return JoinAnswer(member.id, "none", self.generation, self.protocol_type, self.protocol, self.leader, everyone)

    def _synced(self, member: KafkaMember) -> SyncAnswer:
        return SyncAnswer(member.id, "none", self.protocol_type, self.protocol, member.assignment)

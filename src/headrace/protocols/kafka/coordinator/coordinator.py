"""The groups of a server: the state machines of `group` and `consumer_group`, with a clock, timers and who waits.

All of it is on the event loop and in memory. After a restart members join again, as they do when a broker of Kafka
fails; committed offsets are in the store. Of several servers on one PostgreSQL one coordinates a group (`nodes`).

Of a name there may be several groups, whose callers may not read each other's topics (`edge.groups`). A member that
comes with more topics than the others may read takes the group over: the others are removed, and are refused if they
come back. Whoever acts for a member is its caller, or may read all topics of its group.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headrace.core.errors import Forbidden
from headrace.core.names import composed
from headrace.core.rights import Caller
from headrace.edge.access import Principal
from headrace.edge.bridge import Bridge
from headrace.edge.groups import ALL_TOPICS, group_of, have_common, may_read_all, require_all
from headrace.protocols.kafka.coordinator.consumer_group import (
    JOINING,
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerMember,
)
from headrace.protocols.kafka.coordinator.group import ClassicGroup
from headrace.protocols.kafka.coordinator.renewal import Renewal, Turns
from headrace.protocols.kafka.coordinator.requests import Effect, GroupError, Join, JoinAnswer
from headrace.protocols.kafka.coordinator.roster import GroupMemory, Roster

_SHOWN_MAX: Final = 20
KIND: Final = "Kafka"

logger = logging.getLogger(__name__)

Group = ClassicGroup | ConsumerGroup
Waiting = dict[str, asyncio.Future[Any]]


@dataclass(slots=True, eq=False)
class _Entry:
    """A group and its timer; the requests of classic members that wait, or what renews the targets of others."""

    group: Group
    joins: Waiting = field(default_factory=dict)
    syncs: Waiting = field(default_factory=dict)
    renewal: Renewal | None = None
    # What ticks next, and when: uvloop's handles do not always know.
    timer: asyncio.Handle | None = None
    ticks_at: float = 0.0

    @property
    def topics(self) -> Set[str]:
        """The topics that its members read."""
        return self.group.roster.topics

    @property
    def callers(self) -> Collection[Caller]:
        """Whose members they are."""
        return self.group.roster.callers


class Coordinator:
    """All groups with members. Belongs to the event loop."""

    def __init__(self, bridge: Bridge, delay_seconds: float) -> None:
        self._members_max = bridge.broker.settings.members_per_group_max
        self._outside = bridge.broker.claims.outside
        self._delay_seconds = delay_seconds
        self._turns = Turns(bridge)
        self.memory = GroupMemory()
        # By name.
        self._entries: dict[str, list[_Entry]] = {}

    def groups(self) -> list[Group]:
        """The groups that have members."""
        return [entry.group for entries in self._entries.values() for entry in entries]

    def named(self, name: str) -> list[Group]:
        """The groups of a name that have members; callers who may not read each other's topics have one each."""
        return [entry.group for entry in self._of(name)]

    def unread(self, name: str, topics: Collection[str]) -> set[str]:
        """Of these topics those that no member of a group of this name reads."""
        entries = self._of(name)
        return {topic for topic in topics if not any(topic in entry.topics for entry in entries)}

    # The classic protocol

    def join(self, principal: Principal, name: str, request: Join, needs_id: bool) -> asyncio.Future[Any]:
        """Join a group; the future holds the answer once all members have joined."""
        own = self._present(principal, "join", name, request.member_id, request.instance_id)
        is_new = own is None or request.member_id in _pending(own)
        entry = self._home(principal, name, request.topics, own, is_new)
        if entry is None:
            if request.member_id:
                raise GroupError("unknown_member_id", request.member_id)
            entry = _Entry(ClassicGroup(name, self._delay_seconds, self._members_max, Roster(self.memory)))
        group = entry.group
        if not isinstance(group, ClassicGroup):
            raise GroupError("inconsistent_group_protocol", request.member_id)
        added = request.topics - entry.topics
        new_id = f"{request.client_id[:200]}-{uuid.uuid4()}"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            member_id, effects = group.join(request, new_id, needs_id, self._now())
        except GroupError:
            if new_id in group.pending:
                # It is only told its id: its place is kept until it comes back.
                self._give_way(name, entry, new_id, added)
            raise
        finally:
            self._keep(name, entry)
        _supersede(entry.joins, member_id, future)
        self._deliver(name, entry, effects)
        self._give_way(name, entry, member_id, added)
        return future

    def sync(
        self,
        principal: Principal,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        given: Mapping[str, bytes],
    ) -> asyncio.Future[Any]:
        """Ask for the assignment; the future holds the answer once the leader has brought it."""
        entry, group = self._classic(principal, "heartbeat", name, member_id, instance_id)
        effects = group.sync(member_id, instance_id, generation, given, self._now())
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        _supersede(entry.syncs, member_id, future)
        self._deliver(name, entry, effects)
        return future

    def heartbeat(
        self, principal: Principal, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Keep a member in."""
        _, group = self._classic(principal, "heartbeat", name, member_id, instance_id)
        group.heartbeat(member_id, instance_id, generation, self._now())

    def leave(self, principal: Principal, name: str, leavers: Sequence[tuple[str, str | None]]) -> list[str]:
        """Let members go, those of a group in one change; the error of each."""
        errors = ["unknown_member_id"] * len(leavers)
        left = dict(enumerate(leavers))
        for entry in list(self._of(name)):
            group = entry.group
            if not isinstance(group, ClassicGroup):
                continue
            # Static members may be named by their instance alone, where the caller may use the group.
            may = may_read_all(principal.caller, name, entry.topics)
            here = [number for number, named in left.items() if _is_in(group, *named, may)]
            told, effects = ["group_authorization_failed"] * len(here), list[Effect]()
            with suppress(Forbidden):
                for number in here:
                    if not may:
                        self._require(principal, "leave", name, entry, left[number][0])
                told, effects = group.leave([left[number] for number in here], self._now())
            for number, error in zip(here, told, strict=True):
                errors[number] = error
                del left[number]
            self._deliver(name, entry, effects)
        return errors

    # The newer protocol

    async def consumer_heartbeat(
        self, principal: Principal, name: str, request: ConsumerHeartbeat
    ) -> tuple[ConsumerMember, bool]:
        """Join a group of the newer protocol or stay in it; the member, and whether to tell it its assignment."""
        entry = own = self._present(principal, "heartbeat", name, request.member_id, request.instance_id)
        added: Set[str] = frozenset()
        if own is None and request.epoch != JOINING:
            raise GroupError("unknown_member_id", request.member_id)
        if request.topics is not None:
            entry = self._home(principal, name, request.topics, own, own is None)
            added = request.topics if entry is None else request.topics - entry.topics
        if entry is None:
            made = ConsumerGroup(name, self._members_max, Roster(self.memory))
            entry = _Entry(made, renewal=Renewal(made, self._turns))
        group, renewal = entry.group, entry.renewal
        if not isinstance(group, ConsumerGroup) or renewal is None:
            raise GroupError("group_id_not_found", request.member_id)
        try:
            group.heartbeat(request, self._now())
        finally:
            self._keep(name, entry)
        self._give_way(name, entry, request.member_id, added)
        await renewal.finish()
        try:
            return group.reconcile(request.member_id, request, self._now())
        finally:
            self._settle(name, entry)

    def consumer_leave(
        self, principal: Principal, name: str, member_id: str, instance_id: str | None, epoch: int
    ) -> None:
        """Let a member of the newer protocol go."""
        entry = self._present(principal, "leave", name, member_id, instance_id)
        if entry is None or not isinstance(entry.group, ConsumerGroup):
            raise GroupError("unknown_member_id", member_id)
        entry.group.leave(member_id, instance_id, epoch, self._now())
        self._settle(name, entry)

    # Both

    def check_commit(
        self,
        principal: Principal,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        topics: Set[str],
    ) -> None:
        """Refuse the offsets of a former member, and those that no member brings while members read these topics."""
        entry = self._present(principal, "commit", name, member_id, instance_id)
        if entry is None:
            if member_id or any(have_common(topics, other.topics) for other in self._of(name)):
                raise GroupError("unknown_member_id", member_id)
            if generation >= 0:
                raise GroupError("illegal_generation", member_id)
        elif isinstance(entry.group, ConsumerGroup):
            entry.group.check_commit(member_id, generation)
        else:
            entry.group.check_commit(member_id, instance_id, generation, self._now())

    def close(self) -> None:
        """Stop the timers; who waits is let go by the connections."""
        for entries in self._entries.values():
            for entry in entries:
                if entry.timer is not None:
                    entry.timer.cancel()

    # Which group

    def _of(self, name: str) -> list[_Entry]:
        return self._entries.get(composed(name), [])

    def _classic(
        self, principal: Principal, operation: str, name: str, member_id: str, instance_id: str | None
    ) -> tuple[_Entry, ClassicGroup]:
        entry = self._present(principal, operation, name, member_id, instance_id)
        if entry is None or not isinstance(entry.group, ClassicGroup):
            raise GroupError("unknown_member_id", member_id)
        return entry, entry.group

    def _present(
        self, principal: Principal, operation: str, name: str, member_id: str, instance_id: str | None
    ) -> _Entry | None:
        """The group that has this member, or this static one and the caller may use it; raises if he may not."""
        entries = self._of(name)
        for entry in entries:
            if member_id and entry.group.has(member_id):
                self._require(principal, operation, name, entry, member_id)
                return entry
        for entry in entries:
            static = entry.group.roster.instance(instance_id)
            if static is not None and _may_act(principal, name, entry, static):
                return entry
        return None

    def _require(self, principal: Principal, operation: str, name: str, entry: _Entry, member_id: str) -> None:
        """Raise if the caller may not act for a member: whoever seated it was checked then."""
        roster = entry.group.roster
        seat = roster.seat(member_id)
        if seat is None or seat.caller == principal.caller:
            return
        require_all(principal, operation, name, roster.topics)
        if seat.caller.name == principal.caller.name:
            # The token was replaced by a new one.
            roster.put(member_id, replace(seat, caller=principal.caller))

    def _home(
        self, principal: Principal, name: str, topics: Set[str], own: _Entry | None, is_new: bool
    ) -> _Entry | None:
        """The group for a member of these topics, who may be in one already; None for one of its own."""
        found = group_of(principal, name, topics, [each for each in self._of(name) if is_new or each is not own])
        if not is_new:
            return own
        # Who was given an id comes to the group that waits for it.
        return found if own is None or own is found else None

    def _keep(self, name: str, entry: _Entry) -> None:
        """Remember a group, if anybody is in it."""
        entries = self._entries.setdefault(composed(name), [])
        if entry not in entries:
            entries.append(entry)
        self._settle(name, entry)

    def _give_way(self, name: str, entry: _Entry, member_id: str, added: Set[str]) -> None:
        """Remove members who may not read what a new one reads, whose caller may read all of theirs."""
        topics = set(added)
        for other in [each for each in self._of(name) if each is not entry and have_common(topics, each.topics)]:
            self._remove(name, other, list(other.group.members))
        self._remove(name, entry, [each for each in entry.group.roster.strangers(name, added) if each != member_id])

    def _remove(self, name: str, entry: _Entry, member_ids: list[str]) -> None:
        if not member_ids:
            return
        logger.info(
            "members of Kafka group %r were removed: another reads topics that they may not read: %s",
            name,
            shown_members(member_ids),
        )
        group = entry.group
        effects: list[Effect] = []
        if isinstance(group, ClassicGroup):
            effects = group.remove(member_ids, self._now())
        else:
            group.remove(member_ids)
        self._deliver(name, entry, effects)

    # Time and answers

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _deliver(self, name: str, entry: _Entry, effects: list[Effect]) -> None:
        for effect in effects:
            waiting = entry.joins if isinstance(effect, JoinAnswer) else entry.syncs
            future = waiting.pop(effect.member_id, None)
            if future is not None and not future.done():
                future.set_result(effect)
        self._settle(name, entry)

    def _settle(self, name: str, entry: _Entry) -> None:
        """Forget a group that nobody is in; otherwise look again when something is due."""
        group, key = entry.group, composed(name)
        entries = self._entries.get(key, [])
        if group.is_unused and entry in entries:
            entries.remove(entry)
            if not entries:
                del self._entries[key]
        self._tell_outside(key, group.roster.changes())
        deadline = None if group.is_unused else group.next_deadline()
        if entry.timer is not None and (deadline is None or entry.ticks_at > deadline):
            entry.timer.cancel()
            entry.timer = None
        if entry.timer is None and deadline is not None:
            entry.timer, entry.ticks_at = (
                asyncio.get_running_loop().call_at(deadline, self._tick, name, entry),
                deadline,
            )

    def _tell_outside(self, name: str, changes: Mapping[str, bool]) -> None:
        """Keep native members from the topics that members read, and from those alone."""
        if not changes:
            return
        known = [topic for topic in changes if topic != ALL_TOPICS]
        read = {topic for topic in known if any(topic in entry.topics for entry in self._of(name))}
        self._outside.hold(name, read, KIND)
        self._outside.release(name, [topic for topic in known if topic not in read])

    def _tick(self, name: str, entry: _Entry) -> None:
        entry.timer = None
        group, now = entry.group, self._now()
        effects: list[Effect] = []
        if isinstance(group, ClassicGroup):
            before = set(group.members)
            effects = group.tick(now)
            lost: Collection[str] = before - set(group.members)
        else:
            lost = group.tick(now)
        if lost:
            logger.info("members of Kafka group %r were late and removed: %s", name, shown_members(lost))
        self._deliver(name, entry, effects)


def shown_members(member_ids: Collection[str]) -> str:
    """Members in a line of the log: clients choose their ids, so they are quoted and cut."""
    some = ", ".join(repr(each[:100]) for each in sorted(member_ids)[:_SHOWN_MAX])
    return some if len(member_ids) <= _SHOWN_MAX else f"{some} and {len(member_ids) - _SHOWN_MAX} others"


def _pending(entry: _Entry) -> Collection[str]:
    return entry.group.pending if isinstance(entry.group, ClassicGroup) else ()


def _is_in(group: Group, member_id: str, instance_id: str | None, by_instance: bool) -> bool:
    return group.has(member_id) or (by_instance and group.roster.instance(instance_id) is not None)


def _may_act(principal: Principal, name: str, entry: _Entry, member_id: str) -> bool:
    seat = entry.group.roster.seat(member_id)
    is_own = seat is not None and seat.caller == principal.caller
    return is_own or may_read_all(principal.caller, name, entry.topics)


def _supersede(waiting: Waiting, member_id: str, future: asyncio.Future[Any]) -> None:
    """Let a request wait in place of an earlier one of the same member, whose connection has ended."""
    earlier = waiting.get(member_id)
    if earlier is not None:
        earlier.cancel()
    waiting[member_id] = future

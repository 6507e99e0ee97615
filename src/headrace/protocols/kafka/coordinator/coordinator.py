"""The groups of a server: the state machines of `group` and `consumer_group`, with a clock, timers and who waits.

All of it is on the event loop and in memory. After a restart members join again, as they do when a broker of Kafka
fails; committed offsets are in the store. Of several servers on one PostgreSQL one coordinates a group (`nodes`).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.core.errors import QuotaExceeded
from headrace.edge.bridge import Bridge
from headrace.protocols.kafka.coordinator.consumer_group import (
    JOINING,
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerMember,
)
from headrace.protocols.kafka.coordinator.group import ClassicGroup, Effect, GroupError, Join, JoinAnswer

GROUPS_MAX: Final = 100_000
_SHOWN_MAX: Final = 20

logger = logging.getLogger(__name__)

Waiting = dict[str, asyncio.Future[Any]]


@dataclass(slots=True)
class _Entry:
    """A group, the requests of its members that wait, and its timer."""

    group: ClassicGroup
    joins: Waiting = field(default_factory=dict)
    syncs: Waiting = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _ConsumerEntry:
    """A group of the newer protocol, in which nobody waits, and its timer."""

    group: ConsumerGroup
    timer: asyncio.TimerHandle | None = None


class Coordinator:
    """All groups with members. Belongs to the event loop."""

    def __init__(self, bridge: Bridge, delay_seconds: float) -> None:
        self._members_max = bridge.broker.settings.members_per_group_max
        self._outside = bridge.broker.outside_members
        self._delay_seconds = delay_seconds
        self._entries: dict[str, _Entry] = {}
        self._consumers: dict[str, _ConsumerEntry] = {}

    def groups(self) -> list[ClassicGroup]:
        """The groups that have members."""
        return [entry.group for entry in self._entries.values()]

    def find(self, group_id: str) -> ClassicGroup | None:
        """A group that has members, or none."""
        entry = self._entries.get(group_id)
        return None if entry is None else entry.group

    def consumer_groups(self) -> list[ConsumerGroup]:
        """The groups of the newer protocol that have members."""
        return [entry.group for entry in self._consumers.values()]

    def find_consumer(self, group_id: str) -> ConsumerGroup | None:
        """A group of the newer protocol that has members, or none."""
        entry = self._consumers.get(group_id)
        return None if entry is None else entry.group

    def consumer_heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, sizes: Mapping[str, tuple[int, int] | None]
    ) -> tuple[ConsumerMember, bool]:
        """Join a group of the newer protocol or stay in it; the member, and whether to tell it its assignment."""
        if group_id in self._entries:
            raise GroupError("group_id_not_found", request.member_id)
        entry = self._consumers.get(group_id)
        if entry is None:
            if request.epoch != JOINING:
                raise GroupError("unknown_member_id", request.member_id)
            self._check_room()
            entry = self._consumers[group_id] = _ConsumerEntry(ConsumerGroup(group_id, self._members_max))
        try:
            return entry.group.heartbeat(request, sizes, self._now())
        finally:
            self._settle_consumer(group_id, entry)

    def consumer_leave(self, group_id: str, member_id: str, instance_id: str | None, epoch: int) -> None:
        """Let a member of the newer protocol go."""
        entry = self._consumers.get(group_id)
        if entry is None:
            raise GroupError("unknown_member_id", member_id)
        entry.group.leave(member_id, instance_id, epoch, self._now())
        self._settle_consumer(group_id, entry)

    def _settle_consumer(self, group_id: str, entry: _ConsumerEntry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
        deadline = entry.group.next_deadline()
        if deadline is None:
            self._consumers.pop(group_id, None)
            self._outside.release(group_id)
            return
        entry.timer = asyncio.get_running_loop().call_at(deadline, self._tick_consumer, group_id)

    def _tick_consumer(self, group_id: str) -> None:
        entry = self._consumers.get(group_id)
        if entry is not None:
            late = entry.group.tick(self._now())
            if late:
                logger.info("members of Kafka group %r were late and removed: %s", group_id, shown_members(late))
            self._settle_consumer(group_id, entry)

    def _check_room(self) -> None:
        if len(self._entries) + len(self._consumers) >= GROUPS_MAX:
            raise QuotaExceeded("Kafka consumer groups with members", "the number of groups", GROUPS_MAX)

    def join(self, group_id: str, request: Join, needs_id: bool) -> asyncio.Future[Any]:
        """Join a group; the future holds the answer once all members have joined."""
        entry = self._entries.get(group_id)
        if entry is None:
            if group_id in self._consumers:
                raise GroupError("inconsistent_group_protocol", request.member_id)
            self._check_room()
            entry = self._entries[group_id] = _Entry(ClassicGroup(group_id, self._delay_seconds, self._members_max))
        new_id = f"{request.client_id[:200]}-{uuid.uuid4()}"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            member_id, effects = entry.group.join(request, new_id, needs_id, self._now())
        except GroupError:
            self._settle(group_id, entry)
            raise
        _supersede(entry.joins, member_id, future)
        self._deliver(group_id, entry, effects)
        return future

    def sync(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, given: Mapping[str, bytes]
    ) -> asyncio.Future[Any]:
        """Ask for the assignment; the future holds the answer once the leader has brought it."""
        entry = self._entry(group_id, member_id)
        effects = entry.group.sync(member_id, instance_id, generation, given, self._now())
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        _supersede(entry.syncs, member_id, future)
        self._deliver(group_id, entry, effects)
        return future

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """Keep a member in."""
        self._entry(group_id, member_id).group.heartbeat(member_id, instance_id, generation, self._now())

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        """Let a member go."""
        entry = self._entry(group_id, member_id)
        self._deliver(group_id, entry, entry.group.leave(member_id, instance_id, self._now()))

    def check_commit(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """Refuse the offsets of a former member."""
        consumers = self._consumers.get(group_id)
        if consumers is not None:
            consumers.group.check_commit(member_id, generation)
            return
        entry = self._entries.get(group_id)
        if entry is not None:
            entry.group.check_commit(member_id, instance_id, generation, self._now())
        elif generation >= 0:
            raise GroupError("unknown_member_id" if member_id else "illegal_generation", member_id)

    def close(self) -> None:
        """Stop the timers; who waits is let go by the connections."""
        timers = [entry.timer for entry in self._entries.values()]
        timers += [entry.timer for entry in self._consumers.values()]
        for timer in timers:
            if timer is not None:
                timer.cancel()

    def _entry(self, group_id: str, member_id: str) -> _Entry:
        entry = self._entries.get(group_id)
        if entry is None:
            raise GroupError("unknown_member_id", member_id)
        return entry

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _deliver(self, group_id: str, entry: _Entry, effects: list[Effect]) -> None:
        for effect in effects:
            waiting = entry.joins if isinstance(effect, JoinAnswer) else entry.syncs
            future = waiting.pop(effect.member_id, None)
            if future is not None and not future.done():
                future.set_result(effect)
        self._settle(group_id, entry)

    def _settle(self, group_id: str, entry: _Entry) -> None:
        """Forget a group that nobody is in; otherwise look again when something is due."""
        if entry.group.is_unused:
            if entry.timer is not None:
                entry.timer.cancel()
            self._entries.pop(group_id, None)
            self._outside.release(group_id)
            return
        deadline = entry.group.next_deadline()
        if deadline is None:
            return
        if entry.timer is None or entry.timer.cancelled() or entry.timer.when() > deadline:
            if entry.timer is not None:
                entry.timer.cancel()
            entry.timer = asyncio.get_running_loop().call_at(deadline, self._tick, group_id)

    def _tick(self, group_id: str) -> None:
        entry = self._entries.get(group_id)
        if entry is None:
            return
        entry.timer = None
        before = set(entry.group.members)
        effects = entry.group.tick(self._now())
        lost = before - set(entry.group.members)
        if lost:
            logger.info("members of Kafka group %r did not come back in time: %s", group_id, shown_members(lost))
        self._deliver(group_id, entry, effects)


def shown_members(member_ids: Collection[str]) -> str:
    """Members in a line of the log: clients choose their ids, so they are quoted and cut."""
    some = ", ".join(repr(each[:100]) for each in sorted(member_ids)[:_SHOWN_MAX])
    return some if len(member_ids) <= _SHOWN_MAX else f"{some} and {len(member_ids) - _SHOWN_MAX} others"


def _supersede(waiting: Waiting, member_id: str, future: asyncio.Future[Any]) -> None:
    """Let a request wait in place of an earlier one of the same member, whose connection has ended."""
    earlier = waiting.get(member_id)
    if earlier is not None:
        earlier.cancel()
    waiting[member_id] = future

"""The groups of one topic: the rules of the core, applied to a group store.

Decide, persist, apply: a rule of the core gives the next value of a group, the store persists it, and only then waiters
are notified. In a shared store all of this happens under the lock of the group's row, and other servers are notified
too. Once the topic has ended, nothing changes any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from headrace.broker.clock import Clock, DatabaseTime
from headrace.broker.groups.store import GroupDraft, GroupStore, held_by
from headrace.broker.settings import BrokerSettings
from headrace.broker.topics.topic import Topic
from headrace.core.errors import (
    GroupNotFound,
    GroupSizeConflict,
    HeadraceError,
    OffsetOutOfRange,
    OutcomeUnknown,
    PartitionNotFound,
    QuotaExceeded,
    StoreUnavailable,
    again,
)
from headrace.core.groups import group as rules
from headrace.core.groups.commits import check_commit, refusals
from headrace.core.groups.group import Group, Held, ReadFrom, is_alive
from headrace.core.groups.notes import NO_NOTES, CommitNote, told
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import MAX_POLL_SECONDS
from headrace.core.reports.descriptions import CommitOutcome
from headrace.core.topics.settings import TopicSettings
from headrace.storage.group_row import Reach
from headrace.storage.ranges import OffsetRange

# A change of a group: the old value, or None, and the new value.
_Step = tuple[Group | None, Group]


class Groups:
    """The groups of a topic. Thread-safe."""

    def __init__(
        self,
        topic: Topic,
        store: GroupStore,
        announce: Callable[[], None],
        clock: Clock,
        settings: BrokerSettings | None = None,
    ) -> None:
        self._settings = settings or BrokerSettings()
        self._topic = topic
        self._store = store
        self._announce = announce
        self._clock = clock
        # When each group last committed here, for metrics.
        self._last_commits_us: dict[str, int] = {}

    def all(self) -> list[Group]:
        """All groups by name."""
        return self._store.all()

    def has(self, name: str) -> bool:
        """Whether the group exists."""
        return self._store.find(name) is not None

    def get(self, name: str) -> Group:
        """A group; raises if it does not exist."""
        return self._found(name, self._store.find(name))

    def known(self, name: str) -> Group:
        """A group as last seen by this server, which saves a query to a shared store."""
        return self._store.known(name) or self.get(name)

    def has_moved(self, name: str, generation: int) -> bool:
        """Whether a group may be in another generation now; does not block."""
        known = self._store.known(name)
        return known is None or known.generation != generation

    def _found(self, name: str, group: Group | None) -> Group:
        if group is None:
            raise self._missing(name)
        return group

    def _missing(self, name: str) -> HeadraceError:
        """Why there is no such group: a topic that was deleted meanwhile took its groups with it."""
        ended = self._topic.ended
        return GroupNotFound(self._topic.record.name, name) if ended is None else again(ended)

    def settle(self) -> None:
        """Wait for the running change; after the end of the topic it is the last."""
        self._store.settle()

    def forget(self) -> None:
        """Another server changed a group, or may have: invalidate the cache."""
        self._store.forget()

    def register(
        self, name: str, consumers: int | None, important: bool | None, read_from: ReadFrom, server_id: str = ""
    ) -> Group:
        """Create a group, or change an existing one; where it begins is decided once, when it is created.

        A fixed size is refused where another server than this one has claimed the group for members of its own.
        """
        self._check_groups(name)

        def step(draft: GroupDraft) -> _Step:
            if consumers is not None:
                _check_holder(draft, name, server_id)
            if draft.group is not None:
                return _put(draft, rules.register(draft.group, consumers, important))
            return _put(draft, Group(name, consumers, bool(important), read_from), self._beginning(read_from))

        return self._take(name, "back", step)

    def _check_groups(self, name: str) -> None:
        """Refuse to make one group too many. Those who do so at the same moment may both be let through."""
        groups_max = self._settings.groups_per_topic_max
        if self._store.known(name) is None and not self.has(name) and self._store.count() >= groups_max:
            topic = self._topic.record.name
            raise QuotaExceeded(f"groups of topic {topic!r}", "broker.groups_per_topic_max", groups_max)

    def _beginning(self, read_from: ReadFrom) -> dict[int, int]:
        """The offsets of a new group; a partition without one starts at its oldest message."""
        if read_from == "earliest":
            return {}
        with self._topic.using() as log:
            ends = log.offsets().end.tolist()
            if read_from == "latest":
                return dict(enumerate(ends))
            return {partition: log.first_at(partition, read_from) for partition in range(len(ends))}

    def join(
        self,
        name: str,
        member: str,
        session_timeout_seconds: float,
        max_poll_seconds: float = MAX_POLL_SECONDS,
        topic_index: int | None = None,
        server_id: str = "",
    ) -> Group:
        """Add a member, or renew it; a missing group is created, unless the member is refused.

        It is refused where another server than this one has claimed the group for members of its own.
        """
        self._check_groups(name)
        seconds, members_max = session_timeout_seconds, self._settings.members_per_group_max

        def step(draft: GroupDraft) -> _Step:
            before, now_us = draft.group or Group(name), self._now_us(draft)
            after = rules.join(before, member, seconds, now_us, self._partitions, max_poll_seconds, topic_index)
            if member not in before.members:
                if len(after.members) > members_max:
                    raise QuotaExceeded(f"members in group {name!r}", "broker.members_per_group_max", members_max)
                _check_holder(draft, name, server_id)
            return _put(draft, after)

        return self._take(name, "group", step)

    def hold_for(self, name: str, server_id: str, kind: str) -> None:
        """Have all members of a group be such as only this server knows; refused if it has others."""

        def step(draft: GroupDraft) -> None:
            group, now_us = draft.group, self._now_us(draft)
            is_native = group is not None and (
                group.consumers is not None or any(is_alive(member, now_us) for member in group.members.values())
            )
            if is_native:
                raise GroupSizeConflict(name, f"it has native members in topic {self._topic.record.name!r}")
            draft.claim(server_id, kind)

        self._store.change(name, "group", step)

    def heartbeat(self, name: str, member: str, held: Held | None = None, is_reading: bool = False) -> Group:
        """Renew a member's session; the member may say what it holds, or be reading and so hold what it owns."""

        def rule(group: Group, now_us: int) -> Group:
            return rules.heartbeat(group, member, now_us, self._partitions, held, is_reading)

        return self._change(name, rule)

    def leave(self, name: str, member: str) -> Group:
        """Remove a member."""
        return self._change(name, lambda group, now_us: rules.leave(group, member, now_us, self._partitions))

    @property
    def _partitions(self) -> int:
        return self._topic.record.partitions

    def _change(self, name: str, rule: Callable[[Group, int], Group]) -> Group:
        """Apply a rule to a group and the time; if its generation changes, all waiters of the topic are woken."""

        def step(draft: GroupDraft) -> _Step:
            return _put(draft, rule(self._found(name, draft.group), self._now_us(draft)))

        return self._take(name, "group", step)

    def _now_us(self, draft: GroupDraft) -> int:
        """The clock for sessions: this server's monotonic clock, or that of the shared database."""
        return self._clock.session_us(draft.database_us)

    def _take(self, name: str, reach: Reach, step: Callable[[GroupDraft], _Step]) -> Group:
        before, after = self._store.change(name, reach, step)
        if after.generation != (0 if before is None else before.generation):
            self._tell()
        return after

    def _tell(self) -> None:
        self.forget()
        self._topic.watches.wake_all()
        self._announce()

    def expire(self) -> int:
        """Remove members whose session expired, in all groups; returns how many."""
        self._topic.check_alive()
        return sum(self.expire_members(group.name) for group in self.all() if group.members)

    def share_out(self) -> None:
        """Give partitions that were added to members; if it fails, the next heartbeat of a member does it."""
        for group in self.all():
            if group.members and not rules.is_complete(group, self._partitions):
                self.expire_members(group.name)

    def expire_members(self, name: str) -> int:
        """Remove the members of one group whose session expired; returns how many."""
        expired = 0

        def rule(group: Group, now_us: int) -> Group:
            nonlocal expired
            after = rules.expire(group, now_us, self._partitions)
            expired = len(group.members) - len(after.members)
            return after

        with suppress(GroupNotFound):
            self._change(name, rule)
        return expired

    def delete(self, name: str) -> None:
        """Delete a group with its offsets."""

        def remove(draft: GroupDraft) -> None:
            self._found(name, draft.group)
            draft.remove()

        self._store.change(name, "group", remove)
        self._last_commits_us.pop(name, None)
        self._tell()

    def committed(self, name: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        self.get(name)
        return self._store.offsets(name)

    def noted(self, name: str) -> dict[int, CommitNote]:
        """What a client of Kafka is told of the commit of each partition that has one."""
        self.get(name)
        noted = self._store.noted(name)
        # Partitions that are committed exist when the log is queried.
        ends = self._topic.offsets().end
        return {
            partition: told(position, note, ends.item(partition))
            for partition, (position, note) in noted.items()
            if partition < len(ends)
        }

    def positions(self, name: str) -> Int64s:
        """The next offset to read of every partition: the committed one, or the oldest kept."""
        # Committed offsets first: the partitions they name exist when the log is queried.
        committed = self.committed(name)
        return positions_of(self._topic.offsets(), committed)

    def standing(self, name: str) -> tuple[Group, dict[int, int]]:
        """A group and its committed offsets at one moment."""
        standing = self._store.standing(name)
        if standing is None:
            raise self._missing(name)
        return standing

    def all_committed(self) -> Mapping[str, Mapping[int, int]]:
        """The committed offsets of all groups by name, with one query; not to be changed."""
        return self._store.all_offsets()

    def commit(
        self,
        name: str,
        offsets: Mapping[int, int],
        member: str | None,
        generation: int | None,
        is_partial: bool = False,
        notes: Mapping[int, CommitNote] = NO_NOTES,
    ) -> CommitOutcome:
        """Commit that everything below these offsets was read; a commit never moves a group back.

        A partial one leaves out what the member does not own; any other is refused as a whole. Notes are kept with it.
        """
        self.check_offsets(offsets)
        refused: list[int] = []
        current = 0

        def allowed(group: Group | None, database_us: DatabaseTime | None) -> Mapping[int, int]:
            nonlocal current
            now_us = self._clock.session_us(database_us)
            found = self._found(name, group)
            current = found.generation
            if not is_partial:
                check_commit(found, member, generation, offsets, now_us)
                return offsets
            refused[:] = sorted(refusals(found, member, generation, offsets, now_us))
            return {partition: offset for partition, offset in offsets.items() if partition not in refused}

        self._store.raise_offsets(name, allowed, notes)
        self._last_commits_us[name] = self._clock.now_us()
        return CommitOutcome(refused, current)

    def last_commit_us(self, name: str) -> int | None:
        """When a group last committed at this server, if it did."""
        return self._last_commits_us.get(name)

    def claim(self, name: str, partition: int, offset: int, generation: int) -> bool:
        """Move a group past one message; returns whether this call moved it.

        A shared store may try twice, if the first answer was lost: then it is unknown who moved it.
        """
        moved: list[int] = []

        def raise_(draft: GroupDraft) -> None:
            beyond = {partition: offset + 1}
            now_us = self._now_us(draft)
            check_commit(self._found(name, draft.group), None, generation, beyond, now_us)
            moved.append(draft.raise_offsets(beyond))

        return self._certainly(moved, lambda: self._store.change(name, "offsets", raise_))

    def advance(self, name: str, committed: Mapping[int, int], partition: int) -> bool:
        """The same for a group whose offsets are known, the one of this partition included: one statement.

        Nothing is moved if any of them has changed.
        """
        moved: list[bool] = []
        return self._certainly(moved, lambda: self._store.advance(name, committed, partition, moved))

    def _certainly(self, moved: Sequence[int], move: Callable[[], None]) -> bool:
        """Whether this call moved a group; an error if that is unknown."""
        reason = "the answer to the commit was lost"
        try:
            move()
        except StoreUnavailable as error:
            if any(moved):
                raise OutcomeUnknown(self._topic.record.name, reason) from error
            raise
        if any(moved) and not moved[-1]:
            raise OutcomeUnknown(self._topic.record.name, reason)
        return bool(moved[-1])

    def seek(self, name: str, offsets: Mapping[int, int], notes: Mapping[int, CommitNote] = NO_NOTES) -> None:
        """Move a group, forward or back; what its members read before can no longer be committed."""
        self.check_offsets(offsets)

        def step(draft: GroupDraft) -> _Step:
            group = self._found(name, draft.group)
            draft.put_offsets(offsets, notes)
            return _put(draft, rules.seek(group))

        self._take(name, "back", step)

    def forget_offsets(self, name: str, partitions: Iterable[int]) -> None:
        """Forget the committed offsets of some partitions; a group with members keeps them."""
        forgotten = list(partitions)

        def step(draft: GroupDraft) -> _Step:
            group = self._found(name, draft.group)
            if group.members or group.consumers is not None:
                raise GroupSizeConflict(name, "its members have these partitions: stop them first")
            draft.drop_offsets(forgotten)
            return _put(draft, rules.seek(group))

        self._take(name, "back", step)

    def check_offsets(self, offsets: Mapping[int, int]) -> None:
        """Raise for offsets that do not exist; other servers may have written more than this one knows."""
        if self._topic.may_hold(offsets):
            return
        range_, name = self._topic.offsets(), self._topic.record.name
        for partition, offset in offsets.items():
            if not 0 <= partition < len(range_.end):
                raise PartitionNotFound(name, partition, len(range_.end))
            if not 0 <= offset <= range_.end[partition]:
                start, end = int(range_.start[partition]), int(range_.end[partition])
                raise OffsetOutOfRange(name, partition, offset, start, end)

    def held(self) -> Int64s | None:
        """By partition the lowest offset that an important group has not read; None without such groups."""
        committed = [self._store.offsets(group.name) for group in self._store.all() if group.important]
        return held_by(committed, self._topic.record.partitions)

    def drop_outlived(self, now_us: int, settings: TopicSettings | None = None) -> int:
        """Delete messages past retention, by default that of the topic, that all important groups have read."""
        return self._store.drop_outlived(now_us, settings)


def positions_of(offsets: OffsetRange, committed: Mapping[int, int]) -> Int64s:
    """The next offset to read of every partition: the committed one, or the oldest kept."""
    positions = offsets.start.copy()
    for partition, offset in committed.items():
        if partition < len(positions):
            positions[partition] = max(positions[partition], offset)
    return offsets.past_gaps(positions)


def _check_holder(draft: GroupDraft, name: str, server_id: str) -> None:
    """Refuse native members of a group that another server has claimed for its own."""
    if (holder := draft.holder(server_id)) is not None:
        rule = f"it has {holder[1]} members, at server {holder[0]}, and members of one kind at a time"
        raise GroupSizeConflict(name, f"{rule}: stop them first")


def _put(draft: GroupDraft, group: Group, offsets: Mapping[int, int] | None = None) -> _Step:
    before = draft.group
    draft.put(group, offsets)
    return before, group

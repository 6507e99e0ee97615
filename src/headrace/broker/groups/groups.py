"""The groups of one topic and how far they are: the rules of the core, applied to a group store.

Decide, persist, apply: a rule of the core gives the next value of a group, the store persists it, and only then waiters
are notified. In a shared store all of this happens under the lock of the group's row, and other servers are notified
too. Once the topic has ended, nothing changes any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from headrace.broker.clock import Clock
from headrace.broker.cluster.servers import Servers
from headrace.broker.groups.members import GroupMembers, Step, check_holder, put
from headrace.broker.groups.note_room import NoteRoom
from headrace.broker.groups.store import GroupDraft, GroupStore, held_by
from headrace.broker.settings import BrokerSettings
from headrace.broker.topics.topic import Topic
from headrace.core.errors import (
    GroupSizeConflict,
    OffsetOutOfRange,
    OutcomeUnknown,
    PartitionNotFound,
    StoreUnavailable,
)
from headrace.core.groups import group as rules
from headrace.core.groups.commits import check_commit, refusals
from headrace.core.groups.group import Group, ReadFrom
from headrace.core.groups.notes import NO_NOTES, CommitNote, told
from headrace.core.hashes.columns import Int64s
from headrace.core.reports.descriptions import CommitOutcome, TransactionOffsets
from headrace.core.topics.settings import TopicSettings
from headrace.storage.interface import CatalogChange
from headrace.storage.ranges import OffsetRange


class Groups(GroupMembers):
    """The groups of a topic, with their offsets. Thread-safe."""

    def __init__(
        self,
        topic: Topic,
        store: GroupStore,
        announce: Callable[[], None],
        clock: Clock,
        servers: Servers,
        settings: BrokerSettings,
    ) -> None:
        super().__init__(topic, store, announce, clock, servers, settings)
        # When each group last committed here, for metrics.
        self._last_commits_us: dict[str, int] = {}
        self._note_room = NoteRoom(store)

    def settle(self) -> None:
        """Wait for the running change; after the end of the topic it is the last."""
        self._store.settle()

    def register(self, name: str, consumers: int | None, important: bool | None, read_from: ReadFrom) -> Group:
        """Create a group, or change an existing one; where it begins is decided once, when it is created.

        A fixed size is refused where another server than this one has claimed the group for members of its own.
        """
        self._check_groups(name)

        def step(draft: GroupDraft) -> Step:
            if consumers is not None:
                check_holder(draft, name, self._servers.id)
            if draft.group is not None:
                return put(draft, rules.register(draft.group, consumers, important))
            return put(draft, Group(name, consumers, bool(important), read_from), self._beginning(read_from))

        return self._take(name, "back", step)

    def _beginning(self, read_from: ReadFrom) -> dict[int, int]:
        """The offsets of a new group; a partition without one starts at its oldest message."""
        if read_from == "earliest":
            return {}
        with self._topic.using() as log:
            ends = log.offsets().end.tolist()
            if read_from == "latest":
                return dict(enumerate(ends))
            return {partition: log.first_at(partition, read_from) for partition in range(len(ends))}

    def delete(self, name: str) -> None:
        """Delete a group with its offsets."""

        def remove(draft: GroupDraft) -> None:
            self.found(name, draft.group)
            draft.remove()

        self._store.change(name, "group", remove)
        self._last_commits_us.pop(name, None)
        self.sessions.forget(name)
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

    def take_notes(self, name: str, notes: Mapping[int, CommitNote], owner: str) -> None:
        """Count what a caller is about to say with a commit; InvalidInput if it is too much."""
        self._note_room.take(name, notes, owner)

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

        def allowed(group: Group | None) -> Mapping[int, int]:
            nonlocal current
            found = self.found(name, group)
            current = found.generation
            if not is_partial:
                check_commit(found, member, generation, offsets)
                return offsets
            refused[:] = sorted(refusals(found, member, generation, offsets))
            return {partition: offset for partition, offset in offsets.items() if partition not in refused}

        self._expire_due(name)
        self._store.raise_offsets(name, allowed, notes)
        self._last_commits_us[name] = self._clock.now_us()
        return CommitOutcome(refused, current)

    @contextmanager
    def joining(self, asked: TransactionOffsets) -> Iterator[CatalogChange]:
        """Commit offsets as a part of another transaction, which is done, or not, when the context ends."""
        self.check_offsets(asked.offsets)
        member = None if asked.member is None else str(asked.member)

        def allowed(group: Group | None) -> Mapping[int, int]:
            check_commit(self.found(asked.group, group), member, asked.generation, asked.offsets)
            return asked.offsets

        self._expire_due(asked.group)
        with self._store.joining(asked.group, allowed) as change:
            yield change
        self._last_commits_us[asked.group] = self._clock.now_us()

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
            check_commit(self.found(name, draft.group), None, generation, beyond)
            moved.append(draft.raise_offsets(beyond))

        self._expire_due(name)
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

        def step(draft: GroupDraft) -> Step:
            group = self.found(name, draft.group)
            draft.put_offsets(offsets, notes)
            return put(draft, rules.seek(group))

        self._take(name, "back", step)

    def forget_offsets(self, name: str, partitions: Iterable[int]) -> None:
        """Forget the committed offsets of some partitions; a group with members keeps them."""
        forgotten = list(partitions)

        def step(draft: GroupDraft) -> Step:
            group = self.found(name, draft.group)
            if group.members or group.consumers is not None:
                raise GroupSizeConflict(name, "its members have these partitions: stop them first")
            draft.drop_offsets(forgotten)
            return put(draft, rules.seek(group))

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

"""The groups of one topic: the rules of the core, applied to what a book keeps.

Decide, persist, apply: a rule of the core gives the next value of a group, the book stores it, and only then whoever
waits is told. Where the book is shared, all of it happens under the lock of the group's row, and other servers are
told too. Once the topic has ended nothing is changed any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from headrace.broker.groups.store import GroupDraft, GroupStore
from headrace.broker.topics.topic import Topic
from headrace.core.errors import GroupNotFound, OffsetOutOfRange, OutcomeUnknown, PartitionNotFound, StoreUnavailable
from headrace.core.groups import group as rules
from headrace.core.groups.group import Group, ReadFrom
from headrace.core.hashing import Int64s
from headrace.storage.group_row import Reach
from headrace.storage.ranges import Offsets

# What happens to a group: as it was, or none, and as it is.
_Step = tuple[Group | None, Group]


class Groups:
    """The groups of a topic. Safe for threads."""

    def __init__(self, topic: Topic, book: GroupStore, announce: Callable[[], None]) -> None:
        self._topic = topic
        self._book = book
        self._announce = announce

    def all(self) -> list[Group]:
        """All groups by name."""
        return self._book.all()

    def has(self, name: str) -> bool:
        """Whether there is such a group."""
        return self._book.find(name) is not None

    def get(self, name: str) -> Group:
        """A group, or an error that it is not there."""
        return self._found(name, self._book.find(name))

    def known(self, name: str) -> Group:
        """A group as this server saw it last, which spares a look where the store is shared."""
        return self._book.known(name) or self.get(name)

    def has_moved(self, name: str, generation: int) -> bool:
        """Whether a group may be in another generation by now; without waiting for anything."""
        known = self._book.known(name)
        return known is None or known.generation != generation

    def _found(self, name: str, group: Group | None) -> Group:
        if group is None:
            raise GroupNotFound(self._topic.record.name, name)
        return group

    def settle(self) -> None:
        """Wait for the change under way; after the end of the topic it was the last."""
        self._book.settle()

    def forget(self) -> None:
        """Another server changed a group, or may have: what was seen here does not count any more."""
        self._book.forget()

    def register(self, name: str, consumers: int | None, important: bool | None, read_from: ReadFrom) -> Group:
        """Make a group, or change one that is there; where it begins is decided once, when it is made."""

        def step(draft: GroupDraft) -> _Step:
            if draft.group is not None:
                return _put(draft, rules.register(draft.group, consumers, important))
            return _put(draft, Group(name, consumers, bool(important), read_from), self._beginning(read_from))

        return self._take(name, "back", step)

    def _beginning(self, read_from: ReadFrom) -> dict[int, int]:
        """The offsets of a new group; a partition without one begins at its oldest message."""
        if read_from == "earliest":
            return {}
        with self._topic.using() as log:
            ends = log.offsets().end.tolist()
            if read_from == "latest":
                return dict(enumerate(ends))
            return {partition: log.first_at(partition, read_from) for partition in range(len(ends))}

    def join(self, name: str, member: str, session_timeout_seconds: float, now_us: int) -> Group:
        """Let a member in, or renew it; a group that is not there is made, unless the member is refused."""
        seconds = session_timeout_seconds

        def step(draft: GroupDraft) -> _Step:
            return _put(draft, rules.join(draft.group or Group(name), member, seconds, now_us))

        return self._take(name, "group", step)

    def change(self, name: str, rule: Callable[[Group], Group]) -> Group:
        """Apply a rule to a group; if its generation moves, all who wait on the topic look again."""
        return self._take(name, "group", lambda draft: _put(draft, rule(self._found(name, draft.group))))

    def _take(self, name: str, reach: Reach, step: Callable[[GroupDraft], _Step]) -> Group:
        before, after = self._book.change(name, reach, step)
        if after.generation != (0 if before is None else before.generation):
            self._tell()
        return after

    def _tell(self) -> None:
        self.forget()
        self._topic.watches.wake_all()
        self._announce()

    def expire(self, now_us: int) -> int:
        """Take out the members whose session ran out, in all groups; say how many."""
        self._topic.check_alive()
        return sum(self.expire_members(group.name, now_us) for group in self.all() if group.members)

    def expire_members(self, name: str, now_us: int) -> int:
        """Take out the members of one group whose session ran out; say how many."""
        expired = 0

        def rule(group: Group) -> Group:
            nonlocal expired
            after = rules.expire(group, now_us)
            expired = len(group.members) - len(after.members)
            return after

        with suppress(GroupNotFound):
            self.change(name, rule)
        return expired

    def delete(self, name: str) -> None:
        """Remove a group with its offsets."""

        def remove(draft: GroupDraft) -> None:
            self._found(name, draft.group)
            draft.remove()

        self._book.change(name, "group", remove)
        self._tell()

    def committed(self, name: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        self.get(name)
        return self._book.offsets(name)

    def positions(self, name: str) -> Int64s:
        """The next offset to read of every partition: the committed one, or the oldest kept."""
        # Committed offsets first: the partitions they name are there by the time the log is asked.
        committed = self.committed(name)
        return _positions(self._topic.offsets(), committed)

    def positions_in(self, name: str, offsets: Offsets) -> Int64s:
        """The same for the partitions of which the offsets are known, and for a group that is."""
        return _positions(offsets, self._book.offsets(name))

    def commit(
        self, name: str, offsets: Mapping[int, int], member: str | None, generation: int | None, now_us: int
    ) -> None:
        """Store that everything below these offsets was read; a commit never moves a group back."""
        self._check_offsets(offsets)

        def check(group: Group | None) -> None:
            rules.check_commit(self._found(name, group), member, generation, offsets, now_us)

        self._book.raise_offsets(name, offsets, check)

    def claim(self, name: str, partition: int, offset: int, generation: int, now_us: int) -> bool:
        """Move a group past one message; whether it was this call that moved it.

        A shared book may do it twice, if the first answer was lost: who moved it is unknown then.
        """
        moved: list[int] = []

        def raise_(draft: GroupDraft) -> None:
            beyond = {partition: offset + 1}
            rules.check_commit(self._found(name, draft.group), None, generation, beyond, now_us)
            moved.append(draft.raise_offsets(beyond))

        reason = "the answer to the commit was lost"
        try:
            self._book.change(name, "offsets", raise_)
        except StoreUnavailable as error:
            if any(moved):
                raise OutcomeUnknown(self._topic.record.name, reason) from error
            raise
        if any(moved) and not moved[-1]:
            raise OutcomeUnknown(self._topic.record.name, reason)
        return bool(moved[-1])

    def seek(self, name: str, offsets: Mapping[int, int]) -> None:
        """Move a group, forward or back; a new generation keeps its members from committing what they read before."""
        self._check_offsets(offsets)

        def step(draft: GroupDraft) -> _Step:
            group = self._found(name, draft.group)
            draft.put_offsets(offsets)
            return _put(draft, msgspec.structs.replace(group, generation=group.generation + 1))

        self._take(name, "back", step)

    def _check_offsets(self, offsets: Mapping[int, int]) -> None:
        """Refuse what is not there; other servers may have written more than this one knows."""
        if self._topic.may_hold(offsets):
            return
        range_, name = self._topic.offsets(), self._topic.record.name
        for partition, offset in offsets.items():
            if not 0 <= partition < len(range_.end):
                raise PartitionNotFound(name, partition, len(range_.end))
            if not 0 <= offset <= range_.end[partition]:
                start, end = int(range_.start[partition]), int(range_.end[partition])
                raise OffsetOutOfRange(name, partition, offset, start, end)

    def drop_outlived(self, now_us: int) -> int:
        """Drop what is past retention and read by all important groups."""
        return self._book.drop_outlived(now_us)


def _positions(offsets: Offsets, committed: Mapping[int, int]) -> Int64s:
    positions = offsets.start.copy()
    for partition, offset in committed.items():
        if partition < len(positions):
            positions[partition] = max(positions[partition], offset)
    return offsets.past_gaps(positions)


def _put(draft: GroupDraft, group: Group, offsets: Mapping[int, int] | None = None) -> _Step:
    before = draft.group
    draft.put(group, offsets)
    return before, group

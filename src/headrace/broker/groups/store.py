"""Group stores: the groups of a topic, kept by this server alone, or in a database that servers share.

    kept      groups, members and offsets in memory; what must survive is stored in the catalog first, together with
              what other groups store at the same time (`ledger`). One thread at a time changes a group. Retention drops
              what no important group needs while no group moves back; commits do not wait for it.
    shared    nothing in memory counts: every change is a transaction under the lock of the group's row, and every look
              a query. Offsets that are committed at the same time share a transaction. What was seen last is
              remembered for those who must not wait, and forgotten when a neighbour says that it changed something.

Both are thread-safe. A change that fails leaves everything unchanged.
Lock order of the kept store: that of moving back, the turn of a group, then the log's or the catalog's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from headrace.broker.groups.ledger import Ledger
from headrace.broker.groups.offset_commits import OffsetCommit, OffsetCommits
from headrace.broker.groups.turns import GroupTurns
from headrace.broker.topics.topic import Topic
from headrace.core.groups.group import Group
from headrace.core.groups.notes import NO_NOTES, CommitNote
from headrace.core.hashes.columns import Int64s
from headrace.core.topics.settings import TopicSettings
from headrace.storage.catalog import Catalog, GroupWrite
from headrace.storage.group_row import Reach
from headrace.storage.interface import CatalogChange

Result = TypeVar("Result")


# Which offsets of a commit of a group are stored, or raises.
CommitCheck = Callable[[Group | None], Mapping[int, int]]


class GroupDraft(Protocol):
    """One group during an exclusive change."""

    @property
    def group(self) -> Group | None: ...

    def put(self, group: Group, offsets: Mapping[int, int] | None = None) -> None: ...

    def put_offsets(self, offsets: Mapping[int, int], notes: Mapping[int, CommitNote] = NO_NOTES) -> None: ...

    def raise_offsets(self, offsets: Mapping[int, int], notes: Mapping[int, CommitNote] = NO_NOTES) -> int: ...

    def drop_offsets(self, partitions: Sequence[int]) -> None: ...

    def holder(self, server_id: str) -> tuple[str, str] | None: ...

    def claim(self, server_id: str, kind: str) -> None: ...

    def remove(self) -> None: ...


class GroupStore(Protocol):
    """All groups of one topic. `known` does not wait, and may be behind in a shared store."""

    def all(self) -> list[Group]: ...

    def count(self) -> int: ...

    def find(self, name: str) -> Group | None: ...

    def known(self, name: str) -> Group | None: ...

    def offsets(self, name: str) -> dict[int, int]: ...

    def noted(self, name: str) -> dict[int, tuple[int, CommitNote | None]]: ...

    def note_lengths(self, name: str) -> dict[int, int]: ...

    def note_sizes(self, above: int) -> dict[str, int]: ...

    def all_offsets(self) -> dict[str, dict[int, int]]: ...

    def standing(self, name: str) -> tuple[Group, dict[int, int]] | None: ...

    def advance(self, name: str, committed: Mapping[int, int], partition: int, moved: list[bool]) -> None: ...

    def change(self, name: str, reach: Reach, work: Callable[[GroupDraft], Result]) -> Result: ...

    def raise_offsets(self, name: str, check: CommitCheck, notes: Mapping[int, CommitNote] = NO_NOTES) -> None: ...

    def joining(self, name: str, check: CommitCheck) -> AbstractContextManager[CatalogChange]: ...

    def drop_outlived(self, now_us: int, settings: TopicSettings | None = None) -> int: ...

    def forget(self) -> None: ...

    def settle(self) -> None: ...


def held_by(important: Sequence[Mapping[int, int]], partitions: int) -> Int64s | None:
    """By partition the lowest offset that an important group has not read, of their offsets; None without groups."""
    if not important:
        return None
    return np.array([min(offsets.get(number, 0) for offsets in important) for number in range(partitions)], np.int64)


class LocalGroupStore:
    """The groups of a topic that only this server has."""

    def __init__(self, topic: Topic, catalog: Catalog, ledger: Ledger, groups: Iterable[Group]) -> None:
        """`groups` are those that the catalog has."""
        self._topic = topic
        self._catalog = catalog
        self._ledger = ledger
        self._turns = GroupTurns()
        # Held by what may move a group back, and by retention.
        self._back = threading.Lock()
        self._groups = {group.name: group for group in groups}
        # Offsets by group as the catalog has them, once they were asked for; replaced, never changed.
        self._offsets: dict[str, dict[int, int]] = {}
        # How often offsets were forgotten here: what was read of the catalog before is out of date then.
        self._forgotten = 0

    def all(self) -> list[Group]:
        """All groups by name."""
        groups = self._groups.copy()
        return [groups[name] for name in sorted(groups)]

    def count(self) -> int:
        """How many groups there are."""
        return len(self._groups)

    def find(self, name: str) -> Group | None:
        """A group, or none."""
        return self._groups.get(name)

    known = find

    def offsets(self, name: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        offsets = self._offsets.get(name)
        if offsets is None:
            with self._turns.of(name):
                offsets = self.offsets_of(name)
        return offsets.copy()

    def noted(self, name: str) -> dict[int, tuple[int, CommitNote | None]]:
        """The same, with what was said with each commit, which is in the catalog only."""
        return self._catalog.noted(self._topic.record.id, name)

    def note_lengths(self, name: str) -> dict[int, int]:
        """The bytes of what was said with each commit."""
        return self._catalog.note_lengths(self._topic.record.id, name)

    def note_sizes(self, above: int) -> dict[str, int]:
        """The same by group, of those with more than this together."""
        return self._catalog.note_sizes(self._topic.record.id, above)

    def all_offsets(self) -> dict[str, dict[int, int]]:
        """The same for all groups, not to be changed."""
        missing, forgotten = self._groups.keys() - self._offsets.keys(), self._forgotten
        stored = self._catalog.all_offsets(self._topic.record.id) if missing else {}
        for name in missing:
            with self._turns.of(name):
                # What was stored meanwhile is known; what was forgotten meanwhile is asked for again.
                if name in self._groups and name not in self._offsets and forgotten == self._forgotten:
                    self._offsets[name] = stored.get(name, {})
                self.offsets_of(name)
        return self._offsets.copy()

    def offsets_of(self, name: str) -> dict[int, int]:
        """The same, not to be changed; the caller has the turn of the group."""
        offsets = self._offsets.get(name)
        if offsets is None:
            offsets = self._catalog.offsets(self._topic.record.id, name)
            if name in self._groups:
                self._offsets[name] = offsets
        return offsets

    def standing(self, name: str) -> tuple[Group, dict[int, int]] | None:
        """A group and its committed offsets at one moment, or none."""
        with self._turns.of(name):
            group = self._groups.get(name)
            return None if group is None else (group, self.offsets_of(name).copy())

    def advance(self, name: str, committed: Mapping[int, int], partition: int, moved: list[bool]) -> None:
        """Move a group past one message, if its offsets are still the given ones; `moved` gets whether it did."""
        with self._turns.of(name):
            self._topic.check_alive()
            is_same = name in self._groups and self.offsets_of(name) == committed
            if is_same:
                self.put_offsets(name, {partition: committed[partition] + 1})
            moved.append(is_same)

    def change(self, name: str, reach: Reach, work: Callable[[GroupDraft], Result]) -> Result:
        """One change of a group at a time, and none after the topic has ended."""
        with self._back if reach == "back" else nullcontext(), self._turns.of(name):
            self._topic.check_alive()
            return work(_KeptGroup(self, name))

    def raise_offsets(self, name: str, check: CommitCheck, notes: Mapping[int, CommitNote] = NO_NOTES) -> None:
        """Store the offsets that the check allows, where they are above the present ones, or say something else."""
        self.change(name, "offsets", partial(_raise, check, notes))

    @contextmanager
    def joining(self, name: str, check: CommitCheck) -> Iterator[CatalogChange]:
        """The same as a part of another transaction, which is done, or not, when the context ends."""
        with self._turns.of(name):
            self._topic.check_alive()
            allowed, present = check(self._groups.get(name)), self.offsets_of(name)
            risen = {partition: offset for partition, offset in allowed.items() if offset > present.get(partition, -1)}
            try:
                yield self._catalog.storing([GroupWrite(self._topic.record.id, name, offsets=risen)])
            except BaseException:
                # What the catalog has now may be unknown.
                self._forget(name)
                raise
            self._offsets[name] = {**present, **risen}

    def put(self, group: Group, offsets: Mapping[int, int] | None) -> None:
        """Persist a group, then apply it; the caller has its turn."""
        before = self._groups.get(group.name)
        if before != group:
            self._ledger.write(GroupWrite(self._topic.record.id, group.name, group, offsets or {}))
        self._groups[group.name] = group
        if before is None:
            self._offsets[group.name] = dict(offsets or {})

    def put_offsets(self, name: str, offsets: Mapping[int, int], notes: Mapping[int, CommitNote] = NO_NOTES) -> None:
        """Store committed offsets; the caller has the turn of the group."""
        if not offsets:
            return
        present = self.offsets_of(name)
        try:
            self._ledger.write(GroupWrite(self._topic.record.id, name, offsets=offsets, notes=notes))
        except BaseException:
            # The state of the catalog is unknown now: it is queried again.
            self._forget(name)
            raise
        self._offsets[name] = {**present, **offsets}

    def drop_offsets(self, name: str, partitions: Sequence[int]) -> None:
        """Forget committed offsets; the caller has the turn of the group."""
        try:
            self._ledger.write(GroupWrite(self._topic.record.id, name, dropped=partitions))
        finally:
            self._forget(name)

    def remove(self, name: str) -> None:
        """Delete a group with its offsets; the caller has its turn."""
        self._ledger.write(GroupWrite(self._topic.record.id, name, is_removed=True))
        del self._groups[name]
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._offsets.pop(name, None)
        self._forgotten += 1

    def drop_outlived(self, now_us: int, settings: TopicSettings | None = None) -> int:
        """Delete messages past retention that all important groups have read; no group moves back meanwhile."""
        with self._back, self._topic.using() as log:
            return log.drop_outlived(settings or self._topic.record.settings, self._held(), now_us)

    def _held(self) -> Int64s | None:
        committed = [self.offsets(group.name) for group in self.all() if group.important]
        return held_by(committed, self._topic.record.partitions)

    def forget(self) -> None:
        """Does nothing: there is no cache to invalidate."""

    def settle(self) -> None:
        """Wait for the running changes; after the end of the topic they are the last."""
        with self._back:
            for name in self._turns.names():
                with self._turns.of(name):
                    pass


class _KeptGroup:
    """One group of a kept store, in its turn."""

    def __init__(self, store: LocalGroupStore, name: str) -> None:
        self._store = store
        self._name = name

    @property
    def group(self) -> Group | None:
        return self._store.find(self._name)

    def put(self, group: Group, offsets: Mapping[int, int] | None = None) -> None:
        self._store.put(group, offsets)

    def put_offsets(self, offsets: Mapping[int, int], notes: Mapping[int, CommitNote] = NO_NOTES) -> None:
        self._store.put_offsets(self._name, offsets, notes)

    def raise_offsets(self, offsets: Mapping[int, int], notes: Mapping[int, CommitNote] = NO_NOTES) -> int:
        present = self._store.offsets_of(self._name)
        risen = {
            partition: offset
            for partition, offset in offsets.items()
            # What is said about the same offset may differ.
            if offset > present.get(partition, -1) - (partition in notes)
        }
        self._store.put_offsets(self._name, risen, notes)
        return len(risen)

    def drop_offsets(self, partitions: Sequence[int]) -> None:
        self._store.drop_offsets(self._name, partitions)

    def holder(self, server_id: str) -> tuple[str, str] | None:
        """None: there is no other server."""
        return None

    def claim(self, server_id: str, kind: str) -> None:
        """Does nothing: this server knows what it runs."""

    def remove(self) -> None:
        self._store.remove(self._name)


class SharedGroupStore:
    """The groups of a topic in a database that several servers change."""

    def __init__(self, topic: Topic, catalog: Catalog) -> None:
        self._topic = topic
        self._catalog = catalog
        self._commits = OffsetCommits(catalog, topic.record.id)
        # The last known groups, for callers that must not block; replaced as a whole when invalidated.
        self._seen: dict[str, Group] = {}

    def all(self) -> list[Group]:
        """All groups by name."""
        self._topic.check_alive()
        return self._catalog.groups(self._topic.record.id)

    def count(self) -> int:
        """How many groups there are now."""
        return len(self.all())

    def find(self, name: str) -> Group | None:
        """A group as it is now, or none."""
        self._topic.check_alive()
        seen, group = self._seen, self._catalog.group(self._topic.record.id, name)
        if group is not None:
            seen[name] = group
        return group

    def known(self, name: str) -> Group | None:
        """A group as it was seen last, or none."""
        return self._seen.get(name)

    def noted(self, name: str) -> dict[int, tuple[int, CommitNote | None]]:
        """The committed offset of each partition that has one, with what was said with the commit."""
        self._topic.check_alive()
        return self._catalog.noted(self._topic.record.id, name)

    def note_lengths(self, name: str) -> dict[int, int]:
        """The bytes of what was said with each commit."""
        self._topic.check_alive()
        return self._catalog.note_lengths(self._topic.record.id, name)

    def note_sizes(self, above: int) -> dict[str, int]:
        """The same by group, of those with more than this together."""
        self._topic.check_alive()
        return self._catalog.note_sizes(self._topic.record.id, above)

    def all_offsets(self) -> dict[str, dict[int, int]]:
        """The committed offsets of all groups."""
        return self._catalog.all_offsets(self._topic.record.id)

    def offsets(self, name: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        self._topic.check_alive()
        return self._catalog.offsets(self._topic.record.id, name)

    def standing(self, name: str) -> tuple[Group, dict[int, int]] | None:
        """A group and its committed offsets at one moment, or none."""
        self._topic.check_alive()
        return self._catalog.standing(self._topic.record.id, name)

    def advance(self, name: str, committed: Mapping[int, int], partition: int, moved: list[bool]) -> None:
        """Move a group past one message, if its offsets are still the given ones; `moved` gets a line per try."""
        self._topic.check_alive()
        self._catalog.advance(self._topic.record.id, name, committed, partition, moved)

    def change(self, name: str, reach: Reach, work: Callable[[GroupDraft], Result]) -> Result:
        """One change of a group at a time among all servers."""
        self._topic.check_alive()
        return self._catalog.change_group(self._topic.record, name, reach, work)

    def raise_offsets(self, name: str, check: CommitCheck, notes: Mapping[int, CommitNote] = NO_NOTES) -> None:
        """The same, together with others."""
        self._topic.check_alive()
        if not self._commits.commit(OffsetCommit(name, check, notes)):
            self.change(name, "offsets", partial(_raise, check, notes))

    @contextmanager
    def joining(self, name: str, check: CommitCheck) -> Iterator[CatalogChange]:
        """The same as a part of another transaction."""
        self._topic.check_alive()
        yield self._catalog.changing(self._topic.record, name, partial(_raise, check, NO_NOTES))

    def drop_outlived(self, now_us: int, settings: TopicSettings | None = None) -> int:
        """Delete messages past retention; the log itself checks the groups, while none of them can move back."""
        with self._topic.using() as log:
            return log.drop_outlived(settings or self._topic.record.settings, None, now_us)

    def forget(self) -> None:
        """Another server changed something: invalidate the cache."""
        self._seen = {}

    def settle(self) -> None:
        """Does nothing: a change after the end of the topic finds no topic."""


def _raise(check: CommitCheck, notes: Mapping[int, CommitNote], draft: GroupDraft) -> None:
    draft.raise_offsets(check(draft.group), notes)

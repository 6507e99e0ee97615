"""The groups of one topic: their members in memory, everything else in the catalog.

Decide, persist, apply: a rule of the core gives the next value of a group, what must survive a restart is stored if
it changed, and only then is the value taken in. Committed offsets are read from the catalog once and kept. After a
restart groups have no members: they notice and join again. The lock orders the changes of the topic's groups; it is
held while the catalog is written and while retention drops what no important group needs, never while reading
messages. Once the topic has ended nothing is changed any more.

Lock order: the groups' lock, then the log's or the catalog's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
import numpy as np

from headrace.broker.topic import Topic
from headrace.core import groups as rules
from headrace.core.errors import GroupNotFound, OffsetOutOfRange, PartitionNotFound
from headrace.core.groups import Group, ReadFrom
from headrace.core.hashing import Int64s
from headrace.storage.catalog import Catalog


class Groups:
    """The groups of a topic. Safe for threads."""

    def __init__(self, topic: Topic, catalog: Catalog) -> None:
        self._topic = topic
        self._catalog = catalog
        self._lock = threading.Lock()
        self._groups = {group.name: group for group in catalog.groups(topic.record.id)}
        # Offsets by group as the catalog has them, once they were asked for; replaced, never changed.
        self._offsets: dict[str, dict[int, int]] = {}

    def all(self) -> list[Group]:
        """All groups by name."""
        groups = self._groups.copy()
        return [groups[name] for name in sorted(groups)]

    def has(self, name: str) -> bool:
        """Whether there is such a group."""
        return name in self._groups

    def get(self, name: str) -> Group:
        """A group, or an error that it is not there."""
        group = self._groups.get(name)
        if group is None:
            raise GroupNotFound(self._topic.record.name, name)
        return group

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One change at a time, and none after the topic has ended."""
        with self._lock:
            self._topic.check_alive()
            yield

    def settle(self) -> None:
        """Wait for the change under way; after the end of the topic it was the last."""
        with self._lock:
            pass

    def register(self, name: str, consumers: int | None, important: bool | None, read_from: ReadFrom) -> Group:
        """Make a group, or change one that is there; where it begins is decided once, when it is made."""
        with self._changing():
            known = self._groups.get(name)
            if known is not None:
                return self._take_in(known, rules.register(known, consumers, important))
            group = Group(name, consumers, bool(important), read_from)
            offsets = self._beginning(read_from)
            self._catalog.put_group(self._topic.record.id, group, offsets)
            self._groups[name] = group
            self._offsets[name] = offsets
            return group

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
        with self._changing():
            known = self._groups.get(name, Group(name))
            return self._take_in(known, rules.join(known, member, session_timeout_seconds, now_us))

    def change(self, name: str, rule: Callable[[Group], Group]) -> Group:
        """Apply a rule to a group; if its generation moves, all who wait on the topic look again."""
        with self._changing():
            return self._take_in(self.get(name), rule(self.get(name)))

    def _take_in(self, before: Group, after: Group) -> Group:
        if msgspec.structs.replace(after, members={}) != msgspec.structs.replace(before, members={}):
            self._catalog.put_group(self._topic.record.id, after)
        self._groups[after.name] = after
        if after.generation != before.generation:
            self._topic.watches.wake_all()
        return after

    def expire(self, now_us: int) -> int:
        """Take out the members whose session ran out, in all groups; say how many."""
        expired = 0
        with self._changing():
            for group in self.all():
                after = self._take_in(group, rules.expire(group, now_us))
                expired += len(group.members) - len(after.members)
        return expired

    def delete(self, name: str) -> None:
        """Remove a group with its offsets."""
        with self._changing():
            self.get(name)
            self._catalog.remove_group(self._topic.record.id, name)
            del self._groups[name]
            self._offsets.pop(name, None)
        self._topic.watches.wake_all()

    def committed(self, name: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        self.get(name)
        offsets = self._offsets.get(name)
        if offsets is None:
            with self._lock:
                offsets = self._offsets_of(name)
        return offsets.copy()

    def _offsets_of(self, name: str) -> dict[int, int]:
        """The committed offsets of a group; the caller holds the lock."""
        offsets = self._offsets.get(name)
        if offsets is None:
            self.get(name)
            offsets = self._offsets[name] = self._catalog.offsets(self._topic.record.id, name)
        return offsets

    def _put_offsets(self, name: str, offsets: Mapping[int, int]) -> None:
        """Store committed offsets; the caller holds the lock."""
        present = self._offsets_of(name)
        try:
            self._catalog.put_offsets(self._topic.record.id, name, offsets)
        except BaseException:
            # Nobody knows now what the catalog has: it is asked again.
            del self._offsets[name]
            raise
        self._offsets[name] = {**present, **offsets}

    def positions(self, name: str) -> Int64s:
        """The next offset to read of every partition: the committed one, or the oldest kept."""
        # Committed offsets first: the partitions they name are there by the time the log is asked.
        committed = self.committed(name)
        start = self._topic.log.offsets().start.copy()
        for partition, offset in committed.items():
            start[partition] = max(start[partition], offset)
        return start

    def commit(
        self, name: str, offsets: Mapping[int, int], member: str | None, generation: int | None, now_us: int
    ) -> None:
        """Store that everything below these offsets was read; a commit never moves a group back."""
        self._check_offsets(offsets)
        with self._changing():
            rules.check_commit(self.get(name), member, generation, offsets, now_us)
            present = self._offsets_of(name)
            risen = {partition: offset for partition, offset in offsets.items() if offset > present.get(partition, -1)}
            self._put_offsets(name, risen)

    def seek(self, name: str, offsets: Mapping[int, int]) -> None:
        """Move a group, forward or back; a new generation keeps its members from committing what they read before."""
        self._check_offsets(offsets)
        with self._changing():
            group = self.get(name)
            self._put_offsets(name, offsets)
            self._take_in(group, msgspec.structs.replace(group, generation=group.generation + 1))

    def _check_offsets(self, offsets: Mapping[int, int]) -> None:
        range_ = self._topic.log.offsets()
        name = self._topic.record.name
        for partition, offset in offsets.items():
            if not 0 <= partition < len(range_.end):
                raise PartitionNotFound(name, partition, len(range_.end))
            if not 0 <= offset <= range_.end[partition]:
                start, end = int(range_.start[partition]), int(range_.end[partition])
                raise OffsetOutOfRange(name, partition, offset, start, end)

    def drop_outlived(self, now_us: int) -> int:
        """Drop what is past retention and read by all important groups; no group moves back meanwhile."""
        with self._changing(), self._topic.using() as log:
            return log.drop_outlived(self._topic.record.settings, self._held(), now_us)

    def _held(self) -> Int64s | None:
        """Per partition the lowest offset that an important group has yet to read; none without such groups."""
        important = [group.name for group in self.all() if group.important]
        if not important:
            return None
        held = np.full(self._topic.record.partitions, np.iinfo(np.int64).max)
        for name in important:
            committed = self._offsets_of(name)
            held = np.minimum(held, [committed.get(partition, 0) for partition in range(len(held))])
        return held

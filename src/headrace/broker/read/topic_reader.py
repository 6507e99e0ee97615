"""Reads many partitions of one topic at once, for members of groups and for subscribers.

A reader belongs to one topic: if that is deleted and another gets its name, the reader reports that its topic has
ended. Nothing here blocks: a watch says when to read again. Thread-safe.

Partitions take turns: the one whose next message is oldest comes first, and none gets more than its share while others
have messages too. So none starves, however small the limit is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.broker.read.feed import Feed
from headrace.broker.read.seqno_search import find_seqno
from headrace.broker.read.wakeups import ALL_PARTITIONS, Fed, Wakeups
from headrace.broker.topics.registry import OpenTopic
from headrace.broker.topics.topic import Topic
from headrace.core.checks import check_whole
from headrace.core.errors import OffsetOutOfRange, PartitionNotFound, StaleGeneration
from headrace.core.groups import group as rules
from headrace.core.groups.commits import refusals
from headrace.core.groups.group import Group, ReadFrom
from headrace.core.groups.notes import CommitNote
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import FETCH_BYTES_MAX, FETCH_MESSAGES_MAX, MICROSECONDS, SESSION_TIMEOUT_SECONDS_MAX
from headrace.core.messages import content_bytes
from headrace.core.names import check_group_name, check_id
from headrace.core.publish.sources import Source
from headrace.core.reports.descriptions import Membership
from headrace.core.topics.settings import TopicSettings
from headrace.storage.interface import OffsetRange
from headrace.storage.ranges import check_range

# How often a waiting member renews its session within the session timeout.
_RENEWALS_PER_SESSION = 3
# More partitions than this are read in one pass over the log.
_TOGETHER_MIN = 16
NOTHING: Final[Mapping[int, int]] = {}


@dataclass(frozen=True, slots=True)
class MemberRead:
    """The result of a member's fetch: messages, the positions to continue at, and the generation.

    `renew_seconds` is how long a member without messages may wait before it must fetch again to keep its session.
    """

    generation: int
    positions: dict[int, int]
    batches: list[pa.RecordBatch]
    renew_seconds: float


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """Where a member reads: its assignment, and the next offset of each partition that it should read.

    `renew_seconds` is how long it may wait before it must look again to keep its session.
    """

    membership: Membership
    positions: dict[int, int]
    renew_seconds: float


class TopicReader:
    """A reader of one topic."""

    def __init__(self, opened: OpenTopic) -> None:
        self._topic = opened.topic
        self._groups = opened.groups

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._topic.record.name

    @property
    def topic_id(self) -> int:
        """The topic's number: another topic of the same name has another."""
        return self._topic.record.id

    @property
    def settings(self) -> TopicSettings:
        """The settings of the topic, as they are now."""
        return self._topic.record.settings

    @property
    def partitions(self) -> int:
        """The last known number of partitions; does not block."""
        seen = self._topic.seen_offsets()
        return self._topic.record.partitions if seen is None else len(seen.end)

    def offsets(self) -> OffsetRange:
        """Start and end of every partition."""
        return self._topic.offsets()

    def bytes_stored(self) -> int:
        """What the topic takes on the device."""
        with self._topic.using() as log:
            return log.bytes_stored()

    def seen_offsets(self) -> OffsetRange | None:
        """The last known ones, if there are any; does not block."""
        return self._topic.seen_offsets()

    @property
    def watches(self) -> Wakeups:
        """The watches of the topic, as it is open now."""
        return self._topic.watches

    def watching(self, wake: Callable[[], None], partition: int = ALL_PARTITIONS) -> AbstractContextManager[None]:
        """Call a function, in the committing thread, whenever the partition gets messages; or any partition.

        It must return at once. It is also called when the topic changes or ends, or a group changes: read again then.
        """
        return self._topic.watches.calling(partition, wake)

    @contextmanager
    def following(self) -> Iterator[Feed]:
        """A feed that is handed what is written, and otherwise looks at the log as `read` does."""
        feed = self.feed()
        with self.feeding(feed):
            yield feed

    def feed(self, wake: Callable[[], None] | None = None) -> Feed:
        """A feed that nobody hands anything yet; if given, `wake` is called when there may be something to read."""
        return Feed(self.read, self._topic.count_read, wake)

    def feeding(self, fed: Fed) -> AbstractContextManager[None]:
        """Have something handed what is written."""
        return self._topic.watches.feeding(fed)

    def positions_at(self, place: ReadFrom, partitions: Sequence[int] | None = None) -> dict[int, int]:
        """The positions of some or all partitions at the oldest message, at the end, or at a time."""
        rules.check_read_from(place)
        with self._topic.using() as log:
            offsets = log.offsets()
            chosen = range(len(offsets.end)) if partitions is None else partitions
            self._check_partitions(chosen, offsets)
            if place == "earliest":
                return {partition: int(offsets.start[partition]) for partition in chosen}
            if place == "latest":
                return {partition: int(offsets.end[partition]) for partition in chosen}
            return {partition: log.first_at(partition, place) for partition in chosen}

    def times_of(self, positions: Mapping[int, int]) -> dict[int, int]:
        """When the messages with these offsets, one for each partition, were written; those that exist no more not."""
        with self._topic.using() as log:
            self._check_partitions(list(positions), log.offsets())
            times = {partition: log.time_of(partition, offset) for partition, offset in positions.items()}
        return {partition: time_us for partition, time_us in times.items() if time_us is not None}

    def _check_partitions(self, chosen: Sequence[int], offsets: OffsetRange) -> None:
        count = len(offsets.end)
        for partition in chosen:
            if not 0 <= partition < count:
                raise PartitionNotFound(self.name, partition, count)

    def check_reached(self, positions: Mapping[int, int]) -> None:
        """Raise for positions beyond the end; reading finds those that retention has deleted."""
        offsets = self.offsets()
        self._check_partitions(list(positions), offsets)
        for partition, offset in positions.items():
            start, end = int(offsets.start[partition]), int(offsets.end[partition])
            if offset > end:
                raise OffsetOutOfRange(self.name, partition, offset, start, end)

    def is_behind(self, positions: Mapping[int, int]) -> bool:
        """Whether there may be anything to read; uses neither writers' locks nor the disk, so it does not block."""
        seen = self._topic.seen_offsets()
        if seen is None:
            return True
        ends = seen.end
        return any(partition >= len(ends) or offset < ends[partition] for partition, offset in positions.items())

    def read(self, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]:
        """Read from these positions on, each batch of one partition, in turns; at least one message if there is one."""
        check_whole("max_messages", messages_max, 1, FETCH_MESSAGES_MAX)
        check_whole("max_bytes", bytes_max, 1, FETCH_BYTES_MAX)
        offsets = self.offsets()
        ends = {
            partition: check_range(self.name, offsets, partition, offset) for partition, offset in positions.items()
        }
        behind = {partition: offset for partition, offset in positions.items() if offset < ends[partition]}
        return _Turns(self._topic, behind, ends, messages_max, bytes_max).take() if behind else []

    def read_ranges(self, start: Int64s, stop: Int64s, messages_max: int, bytes_max: int) -> pa.RecordBatch | None:
        """Read from `start` up to `stop`, both by partition: rows of many partitions, those of each in order.

        At least one message, or None if there is nothing.
        """
        check_whole("max_messages", messages_max, 1, FETCH_MESSAGES_MAX)
        check_whole("max_bytes", bytes_max, 1, FETCH_BYTES_MAX)
        batch = self._topic.read_ranges(start, stop, messages_max, bytes_max)
        if batch is not None:
            return batch
        wanted = np.flatnonzero(start < stop)
        found = self.read(dict(zip(wanted.tolist(), start[wanted].tolist(), strict=True)), messages_max, bytes_max)
        if not found:
            return None
        batch = pa.concat_batches(found)
        is_within = batch.column("offset").to_numpy() < stop[batch.column("partition").to_numpy()]
        return batch if is_within.all() else batch.filter(pa.array(is_within))

    def offset_of(self, partition: int, source: Source, seqno: int) -> int | None:
        """The offset of a message that its source wrote lately, or None: it was deleted, or is too far back."""
        return find_seqno(self._topic, partition, source, seqno)

    def read_shares(self, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]:
        """Read many partitions in one pass, a batch of each, none with more than its share of the limits.

        Those that do not fit and those that cannot be read are omitted: reading them alone raises the reason.
        """
        return self._topic.read_many(positions, messages_max, bytes_max)

    def noted(self, group: str) -> dict[int, CommitNote]:
        """What a client of Kafka is told of the commit of each partition that has one."""
        return self._groups.noted(check_group_name(group))

    def take_notes(self, group: str, notes: Mapping[int, CommitNote], owner: str) -> None:
        """Count what a client of Kafka is about to say with a commit; InvalidInput if a topic keeps no more of it."""
        self._groups.take_notes(check_group_name(group), notes, owner)

    def commit_notes(
        self, group: str, offsets: Mapping[int, int], notes: Mapping[int, CommitNote], is_back: bool
    ) -> None:
        """Commit beside the members of a group, with what a client of Kafka says; `is_back` if it may move back."""
        if is_back:
            self._groups.seek(check_group_name(group), offsets, notes)
        else:
            self._groups.commit(check_group_name(group), offsets, None, None, notes=notes)

    def read_as_member(
        self,
        group: str,
        member: str,
        generation: int | None,
        given: Mapping[int, int],
        messages_max: int,
        bytes_max: int,
    ) -> MemberRead:
        """Read the member's partitions, from the group's or the given positions.

        Reading renews the session and lets go what is being revoked, so commit before. Given positions of partitions
        that are not the member's are left out. An old generation is an error, and nothing is let go then.
        """
        present = self._present(check_group_name(group), check_id("member", member), generation)
        positions = self._positions(present, member, given)
        batches = self.read(positions, messages_max, bytes_max)
        for batch in batches:
            positions[batch.column("partition")[0].as_py()] = batch.column("offset")[-1].as_py() + 1
        return MemberRead(present.generation, positions, batches, _renew_seconds(present, member))

    def member_place(
        self, group: str, member: str, generation: int | None = None, given: Mapping[int, int] = NOTHING
    ) -> MemberPlace:
        """Renew the member's session and return where it reads; nothing is let go.

        Positions given, as of a generation, are kept where the member could commit them; all other partitions begin at
        the committed offsets of the group.
        """
        name, member = check_group_name(group), check_id("member", member)
        present = self._groups.known(name)
        if present.consumers is None:
            present = self._groups.heartbeat(name, member)
        assigned = rules.assigned(present, member, self._topic.record.partitions)
        refused = given if generation is None else refusals(present, member, generation, given)
        stored = self._groups.positions(name)
        positions = {
            partition: given[partition] if partition in given and partition not in refused else int(stored[partition])
            for partition in assigned
        }
        revoking = rules.revoking(present, member)
        membership = Membership(name, member, present.generation, assigned, present.seek_generation, revoking)
        return MemberPlace(membership, positions, _renew_seconds(present, member))

    def has_moved(self, group: str, generation: int) -> bool:
        """Whether a group may be in another generation now; does not block."""
        self._topic.check_alive()
        return self._groups.has_moved(group, generation)

    def _present(self, group: str, member: str, generation: int | None) -> Group:
        """The group, with the member's session renewed; raises if it is not in the generation given."""
        present = self._groups.get(group)
        is_current = generation is None or generation == present.generation
        if present.consumers is None:
            present = self._groups.heartbeat(group, member, is_reading=is_current)
        # Another server may have moved the group in between.
        if generation is not None and (not is_current or present.seek_generation > generation):
            raise StaleGeneration(present.name, generation, present.generation)
        return present

    def _positions(self, group: Group, member: str, given: Mapping[int, int]) -> dict[int, int]:
        assigned = rules.assigned(group, member, self._topic.record.partitions)
        stored, offsets = self._groups.positions(group.name), self.offsets()
        wanted = {partition: given.get(partition, int(stored[partition])) for partition in assigned}
        return {partition: offsets.readable(partition, offset) for partition, offset in wanted.items()}


def _renew_seconds(group: Group, member: str) -> float:
    known = group.members.get(member)
    return (
        SESSION_TIMEOUT_SECONDS_MAX
        if known is None
        else known.session_timeout_us / MICROSECONDS / _RENEWALS_PER_SESSION
    )


class _Turns:
    """Reads several partitions: one round in which each gets its share, and one for the remainder."""

    def __init__(
        self, topic: Topic, behind: dict[int, int], ends: Mapping[int, int], messages_max: int, bytes_max: int
    ) -> None:
        self._topic = topic
        self._next = behind
        self._ends = ends
        self._messages_left = messages_max
        self._bytes_left = bytes_max
        self._batches: list[pa.RecordBatch] = []

    def take(self) -> list[pa.RecordBatch]:
        if len(self._next) > _TOGETHER_MIN:
            self._take_together()
            # A partition that cannot be read with the others is read separately, which raises the reason.
            if self._batches:
                return self._batches
        order = self._oldest_first()
        share = max(1, self._messages_left // len(order)), max(1, self._bytes_left // len(order))
        for partition in order:
            self._turn(partition, *share)
        for partition in order:
            self._turn(partition, self._messages_left, self._bytes_left)
        return self._batches

    def _take_together(self) -> None:
        """The same two rounds, each in one pass over the log."""
        for _ in range(2):
            behind = {partition: offset for partition, offset in self._next.items() if offset < self._ends[partition]}
            if behind and self._messages_left > 0 and self._bytes_left > 0:
                for batch in self._topic.read_many(behind, self._messages_left, self._bytes_left):
                    self._took(batch.column("partition")[0].as_py(), batch)

    def _oldest_first(self) -> list[int]:
        if len(self._next) == 1:
            return list(self._next)
        with self._topic.using() as log:
            times = {partition: log.time_of(partition, offset) or 0 for partition, offset in self._next.items()}
        return sorted(times, key=lambda partition: times[partition])

    def _turn(self, partition: int, messages: int, bytes_: int) -> None:
        messages, bytes_ = min(messages, self._messages_left), min(bytes_, self._bytes_left)
        if messages > 0 and bytes_ > 0 and self._next[partition] < self._ends[partition]:
            batch = self._topic.fetch(partition, self._next[partition], messages, bytes_, 0.0)
            if batch.num_rows:
                self._took(partition, batch)

    def _took(self, partition: int, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._next[partition] += batch.num_rows
        self._messages_left -= batch.num_rows
        self._bytes_left -= content_bytes(batch)

"""One topic of a read session: its partitions, and the membership that gives and takes them.

With a consumer the session is a member of the group in each of its topics, under the id of the session. Without one, or
with partitions that the client chose, it reads these whoever else does. Calls of the broker are made in threads; the
state belongs to the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.broker import Broker
from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import PartitionNotFound
from headrace.core.reports.descriptions import Membership
from headrace.protocols.ydb.sessions.commit_ranges import CommitRanges
from headrace.protocols.ydb.sessions.partition_session import PartitionSession
from headrace.protocols.ydb.statuses import Status, YdbRefusal

# How long a client may take to give a partition up, after it was asked.
RELEASE_SECONDS: Final = 60.0
# The server renews memberships itself: one is silent only after the end of its server, and its client is back soon.
SESSION_SECONDS: Final = 12.0
RENEW_SECONDS: Final = SESSION_SECONDS / 3


@dataclass(slots=True, eq=False)
class ReadTopic:
    """A topic of a session. `chosen` are the partitions that the client named, if it did."""

    path: str
    name: str
    reader: TopicReader
    consumer: str
    member: str
    index: int
    chosen: frozenset[int] = frozenset()
    read_from_us: int = 0
    sessions: dict[int, PartitionSession] = field(default_factory=dict)
    generation: int = 0
    renew_at: float = 0.0

    @property
    def is_member(self) -> bool:
        """Whether partitions are given to this session and taken from it."""
        return bool(self.consumer) and not self.chosen

    def held(self) -> list[int]:
        """The partitions that the client has, or is about to give up."""
        return [partition for partition, session in self.sessions.items() if not session.is_stopped]

    def is_due(self, now: float) -> bool:
        """Whether the membership must be renewed, or may have changed."""
        if not self.is_member:
            return False
        return now >= self.renew_at or self.reader.has_moved(self.consumer, self.generation)

    def reading(self) -> dict[int, int]:
        """The next offset of each partition that is read."""
        return {
            partition: session.position
            for partition, session in self.sessions.items()
            if session.is_read and session.position is not None
        }

    def in_sessions(self) -> Iterator[PartitionSession]:
        """All partitions, those that are being given up among them."""
        return iter(list(self.sessions.values()))


def join(broker: Broker, topic: ReadTopic) -> None:
    """Become a member, which gets its partitions at the next renewal."""
    if topic.is_member:
        joined = broker.join_group(
            topic.name, topic.consumer, topic.member, SESSION_SECONDS, RELEASE_SECONDS, topic.index
        )
        topic.generation = joined.generation


def renew(broker: Broker, topic: ReadTopic, held: list[int]) -> tuple[Membership, Mapping[int, int], bool]:
    """Stay a member; the partitions to read, the committed offsets, and whether the group was moved since."""
    before = topic.generation
    present = broker.heartbeat(topic.name, topic.consumer, topic.member, before, held)
    return present, broker.committed(topic.name, topic.consumer), present.seek_generation > before


def chosen_sessions(broker: Broker, topic: ReadTopic) -> Mapping[int, int]:
    """The committed offsets of the partitions that the client chose."""
    count = topic.reader.partitions
    for partition in topic.chosen:
        if not 0 <= partition < count:
            raise PartitionNotFound(topic.name, partition, count)
    return broker.committed(topic.name, topic.consumer) if topic.consumer else {}


def opened(topic: ReadTopic, number: int, partition: int, committed: Mapping[int, int]) -> PartitionSession:
    """A session for one partition; it starts at the committed offset, or where the client says it may begin."""
    start = topic.reader.offsets().start[partition].item()
    if topic.read_from_us:
        start = max(start, topic.reader.positions_at(topic.read_from_us, [partition])[partition])
    return PartitionSession(number, partition, CommitRanges(committed.get(partition, 0)), start)


def check_unmoved(topic: ReadTopic, committed: Mapping[int, int]) -> None:
    """End a session one of whose partitions was moved by another: its client reads it again from there."""
    for partition, session in topic.sessions.items():
        if committed.get(partition, 0) != session.ranges.committed:
            reason = f"consumer {topic.consumer[:100]!r} was moved in partition {partition}"
            raise YdbRefusal(Status.SESSION_EXPIRED, f"{reason}: read again from there")

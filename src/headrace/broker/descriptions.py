"""What the broker tells about topics and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.broker.topics import OpenTopic
from headrace.core.assignment import owner_of, partitions_of
from headrace.core.groups import Group, ReadFrom
from headrace.core.limits import MICROSECONDS
from headrace.core.settings import TopicSettings


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: start and end offset by partition, the bytes it takes, and the names of its groups."""

    name: str
    id: int
    partitions: int
    settings: TopicSettings
    created_us: int
    offsets: dict[int, tuple[int, int]]
    bytes_stored: int
    groups: list[str]


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far a group is in one partition; `lag_seconds` is the age of the oldest message it has yet to read."""

    committed: int | None
    position: int
    end: int
    lag_messages: int
    lag_seconds: float
    consumer: str | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: its consumers with their partitions, and its progress by partition."""

    topic: str
    name: str
    consumers: int | None
    important: bool
    read_from: ReadFrom
    generation: int
    members: dict[str, list[int]]
    progress: dict[int, PartitionProgress]

    @property
    def lag_messages(self) -> int:
        """The messages it has yet to read, over all partitions."""
        return sum(progress.lag_messages for progress in self.progress.values())

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest message it has yet to read."""
        return max((progress.lag_seconds for progress in self.progress.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class Membership:
    """What a member knows: the group's generation and the partitions it reads in it."""

    group: str
    member: str
    generation: int
    partitions: list[int]


@dataclass(frozen=True, slots=True)
class Staged:
    """A stage and the rows it has: what must be named to publish it."""

    stage: str
    rows: int


def describe_topic(opened: OpenTopic) -> TopicDescription:
    """All about a topic."""
    record = opened.record
    with opened.topic.using() as log:
        offsets, bytes_stored = log.offsets(), log.bytes_stored()
    return TopicDescription(
        name=record.name,
        id=record.id,
        partitions=record.partitions,
        settings=record.settings,
        created_us=record.created_us,
        offsets=dict(enumerate(zip(offsets.start.tolist(), offsets.end.tolist(), strict=True))),
        bytes_stored=bytes_stored,
        groups=[group.name for group in opened.groups.all()],
    )


def describe_group(opened: OpenTopic, name: str, now_us: int) -> GroupDescription:
    """All about a group, lag included."""
    group = opened.groups.get(name)
    record, order = opened.record, group.order
    return GroupDescription(
        topic=record.name,
        name=group.name,
        consumers=group.consumers,
        important=group.important,
        read_from=group.read_from,
        generation=group.generation,
        members={
            consumer: list(partitions_of(place, len(order), record.partitions)) for place, consumer in enumerate(order)
        },
        progress=_progress(opened, group, order, now_us),
    )


def _progress(opened: OpenTopic, group: Group, order: Sequence[str], now_us: int) -> dict[int, PartitionProgress]:
    committed = opened.groups.committed(group.name)
    positions = opened.groups.positions(group.name).tolist()
    progress = {}
    with opened.topic.using() as log:
        ends = log.offsets().end.tolist()
        oldest = [log.time_of(partition, position) for partition, position in enumerate(positions)]
    for partition, (position, end, oldest_us) in enumerate(zip(positions, ends, oldest, strict=False)):
        lag_seconds = 0.0 if oldest_us is None else max(0, now_us - oldest_us) / MICROSECONDS
        consumer = order[owner_of(partition, len(order))] if order else None
        progress[partition] = PartitionProgress(
            committed.get(partition), position, end, max(0, end - position), lag_seconds, consumer
        )
    return progress

"""Descriptions of topics, groups and members at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from headrace.broker.topics.registry import OpenTopic
from headrace.broker.topics.topic import Topic
from headrace.core.archive.manifest import ArchiveSnapshot
from headrace.core.groups import group as rules
from headrace.core.groups.group import Group
from headrace.core.limits import MICROSECONDS
from headrace.core.reports.descriptions import GroupDescription, Membership, PartitionProgress, TopicDescription
from headrace.core.topics.offsets import widened
from headrace.storage.archive.tiered_log import TieredLog


def describe_topic(opened: OpenTopic) -> TopicDescription:
    """Describe a topic."""
    record = opened.record
    offsets = opened.topic.offsets()
    with opened.topic.using() as log:
        bytes_stored = log.bytes_stored()
    return TopicDescription(
        name=record.name,
        id=record.id,
        partitions=record.partitions,
        settings=record.settings,
        created_us=record.created_us,
        offsets=offsets.by_partition(),
        bytes_stored=bytes_stored,
        groups=[group.name for group in opened.groups.all()],
    )


def archive_of(topic: Topic, url: str | None) -> ArchiveSnapshot:
    """The archive of a topic; the offsets are looked up after its files, so that they are never below them.

    Before the files, the start of the log: what is below it, and was deleted while the archive was off, is nowhere, so
    the archive is complete up to there.
    """
    record = topic.record
    with topic.using() as log:
        start = log.inner.offsets().start if isinstance(log, TieredLog) else np.zeros(0, np.int64)
        view = log.newest_view() if isinstance(log, TieredLog) else None
        offsets = log.offsets()
    count = len(offsets.end)
    ends = [] if view is None else np.maximum(view.ends(count)[:count], widened(start, count)).tolist()
    files = [] if view is None else list(view.manifest.files)
    complete, schema = dict(enumerate(ends)), record.settings.value_schema
    return ArchiveSnapshot(record.name, record.id, url, files, complete, offsets.by_partition(), schema)


def describe_group(opened: OpenTopic, name: str, now_us: int) -> GroupDescription:
    """Describe a group, with its lag."""
    group = opened.groups.get(name)
    record = opened.record
    owners = group.owners(record.partitions)
    members: dict[str, list[int]] = {consumer: [] for consumer in group.order}
    for partition in sorted(owners):
        members[owners[partition]].append(partition)
    return GroupDescription(
        topic=record.name,
        name=group.name,
        consumers=group.consumers,
        important=group.important,
        read_from=group.read_from,
        generation=group.generation,
        members=members,
        progress=_progress(opened, group, owners, now_us),
        seek_generation=group.seek_generation,
    )


def describe_member(opened: OpenTopic, group: Group, member: str, held: Iterable[int] | None) -> Membership:
    """Describe a member; where to begin only if it says what it holds."""
    assigned = rules.assigned(group, member, opened.topic.record.partitions)
    new = [] if held is None else sorted(set(assigned).difference(held))
    stored = opened.groups.positions(group.name) if new else None
    positions = {} if stored is None else {partition: stored.item(partition) for partition in new}
    revoking = rules.revoking(group, member)
    return Membership(group.name, member, group.generation, assigned, group.seek_generation, revoking, positions)


def _progress(opened: OpenTopic, group: Group, owners: Mapping[int, str], now_us: int) -> dict[int, PartitionProgress]:
    committed = opened.groups.committed(group.name)
    positions = opened.groups.positions(group.name).tolist()
    progress = {}
    with opened.topic.using() as log:
        ends = log.offsets().end.tolist()
        oldest = [log.time_of(partition, position) for partition, position in enumerate(positions)]
    for partition, (position, end, oldest_us) in enumerate(zip(positions, ends, oldest, strict=False)):
        lag_seconds = 0.0 if oldest_us is None else max(0, now_us - oldest_us) / MICROSECONDS
        progress[partition] = PartitionProgress(
            committed.get(partition), position, end, max(0, end - position), lag_seconds, owners.get(partition)
        )
    return progress

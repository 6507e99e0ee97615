"""The state of a broker, topic by topic, at one moment: the source of metrics.

Designed for many topics and groups: what all groups of a topic share is queried once, and consumers of the queue API,
which are groups too and may be thousands, are only counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from headrace.broker.groups.groups import positions_of
from headrace.broker.queue_api.registrations import is_consumer
from headrace.broker.topics.registry import OpenTopic, Topics
from headrace.core.errors import HeadraceError, StorageError
from headrace.core.groups.group import Group
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import MICROSECONDS
from headrace.core.reports.histogram import Histogram
from headrace.core.topics.settings import TopicSettings
from headrace.storage.archive.tiered_log import TieredLog
from headrace.storage.interface import OffsetRange, TopicLog

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoreMetrics:
    """What has no topic. The file system has sizes only where the store is on one."""

    servers: int
    topics: int
    tokens: int
    tokens_expiring: int
    failing_topics: list[str]
    disk_size_bytes: int | None
    disk_free_bytes: int | None


@dataclass(frozen=True, slots=True)
class GroupMetrics:
    """How far behind a group is; its next offset in every partition, if that was asked for.

    members: of a group of a fixed size, that size. committed: the sum of its committed offsets. last_commit_us: when
    this server last stored a commit of it, if it did. generation: changes with its members and by seeks;
    seek_generation: that of the last seek.
    """

    name: str
    is_important: bool
    is_fixed: bool
    members: int
    lag_messages: int
    lag_seconds: float
    committed: int
    last_commit_us: int | None
    positions: list[int] | None
    generation: int
    seek_generation: int


@dataclass(frozen=True, slots=True)
class ArchiveMetrics:
    """The archive of a topic: its files, and what is not archived yet. `is_failing` is 1 if the last attempt failed."""

    files: int
    bytes: int
    lag_messages: int
    late_seconds: float
    is_failing: int


@dataclass(frozen=True, slots=True)
class TopicMetrics:
    """A topic's counters, histograms and sizes. Consumers of the queue API are counted, and not described."""

    name: str
    counters: dict[str, int]
    offsets: dict[int, tuple[int, int]]
    groups: list[GroupMetrics]
    queue_consumers: int
    partitions: int
    retention_seconds: int | None
    retention_bytes: int | None
    bytes_stored: int
    queued_messages: int
    waiting_readers: int
    window_payloads: int
    sources: int
    offsets_skipped: int
    damaged_segments: int
    publish_seconds: Histogram
    fetch_seconds: Histogram
    sync_seconds: Histogram
    commit_messages: Histogram
    archive: ArchiveMetrics | None


def groups_of(opened: OpenTopic) -> tuple[list[Group], int]:
    """The groups of a topic without the consumers of the queue API, and how many of those there are."""
    everyone = opened.groups.all()
    groups = [group for group in everyone if not is_consumer(group.name)]
    return groups, len(everyone) - len(groups)


def all_topic_metrics(topics: Topics, now_us: int, partitions_max: int | None) -> list[TopicMetrics]:
    """The state of every topic; one that ends meanwhile is skipped.

    Groups include their positions unless there are more groups and partitions than `partitions_max`.
    """
    looked = [(opened, *found) for opened in topics.all() if (found := _unless_ended(opened, groups_of))]
    count = sum(opened.record.partitions * (1 + len(groups)) for opened, groups, _ in looked)
    has_positions = partitions_max is None or count <= partitions_max
    described = []
    for opened, groups, consumers in looked:
        look = partial(
            topic_metrics_of, groups=groups, queue_consumers=consumers, now_us=now_us, has_positions=has_positions
        )
        seen = _unless_ended(opened, look)
        if seen is not None:
            described.append(seen)
    return described


def _unless_ended(opened: OpenTopic, look: Callable[[OpenTopic], Result]) -> Result | None:
    """The metrics of a topic, or None if it ended meanwhile."""
    try:
        return look(opened)
    except HeadraceError:
        if opened.topic.ended is None:
            raise
        return None


def topic_metrics_of(
    opened: OpenTopic, groups: Sequence[Group], queue_consumers: int, now_us: int, has_positions: bool
) -> TopicMetrics:
    """The state of a topic, with these groups."""
    topic, log = opened.topic, opened.topic.log
    offsets = topic.offsets()
    with topic.using():
        bytes_stored = log.bytes_stored()
        described = _described(opened, groups, log, offsets, now_us, has_positions) if groups else []
    # In a shared store only a server that publishes to a topic has its state in memory; it is not loaded for this.
    state = log.peek()
    return TopicMetrics(
        name=topic.record.name,
        counters=topic.counters.snapshot(),
        offsets=offsets.by_partition(),
        groups=described,
        queue_consumers=queue_consumers,
        partitions=topic.record.partitions,
        retention_seconds=topic.record.settings.retention_seconds,
        retention_bytes=topic.record.settings.retention_bytes,
        bytes_stored=bytes_stored,
        queued_messages=topic.intake.depth,
        waiting_readers=len(topic.watches),
        window_payloads=0 if state is None else len(state.window),
        sources=0 if state is None else len(state.sources),
        offsets_skipped=offsets.skipped,
        damaged_segments=log.damaged_segments,
        publish_seconds=topic.intake.seconds,
        fetch_seconds=topic.fetch_seconds,
        sync_seconds=log.sync_seconds,
        commit_messages=topic.commit_messages,
        archive=_archive(topic.record.settings, log, now_us),
    )


def _archive(settings: TopicSettings, log: TopicLog, now_us: int) -> ArchiveMetrics | None:
    """Only of topics that are archived, or were."""
    if not isinstance(log, TieredLog) or (settings.archive == "off" and log.view is None):
        return None
    files = () if log.view is None else log.view.manifest.files
    messages, seconds = log.lag(settings.archive_after_seconds, now_us) if settings.archive == "on" else (0, 0.0)
    size = sum(file.bytes for file in files)
    return ArchiveMetrics(len(files), size, messages, seconds, int(log.archive_failure is not None))


def _described(
    opened: OpenTopic, groups: Sequence[Group], log: TopicLog, offsets: OffsetRange, now_us: int, has_positions: bool
) -> list[GroupMetrics]:
    """All groups; one that is deleted meanwhile is skipped."""
    all_committed, times = opened.groups.all_committed(), _Times(log)
    described = []
    for group in groups:
        committed = all_committed.get(group.name)
        if committed is None:
            continue
        positions = positions_of(offsets, committed)
        lag = np.maximum(offsets.end - positions, 0)
        oldest_us = times.oldest_us(positions, np.flatnonzero(lag).tolist())
        seconds = 0.0 if oldest_us is None else max(0, now_us - oldest_us) / MICROSECONDS
        kept = positions.tolist() if has_positions else None
        metrics = GroupMetrics(
            name=group.name,
            is_important=group.important,
            is_fixed=group.consumers is not None,
            members=group.consumers or len(group.members),
            lag_messages=int(lag.sum()),
            lag_seconds=seconds,
            committed=sum(committed.values()),
            last_commit_us=opened.groups.last_commit_us(group.name),
            positions=kept,
            generation=group.generation,
            seek_generation=group.seek_generation,
        )
        described.append(metrics)
    return described


class _Times:
    """When messages of a topic were written, cached: many groups are at the same one."""

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        self._known: dict[tuple[int, int], int | None] = {}

    def oldest_us(self, positions: Int64s, partitions: Sequence[int]) -> int | None:
        """The oldest of the next messages of some partitions, or None."""
        found = [self._time_us(partition, int(positions[partition])) for partition in partitions]
        return min((time_us for time_us in found if time_us is not None), default=None)

    def _time_us(self, partition: int, offset: int) -> int | None:
        key = partition, offset
        if key not in self._known:
            # The age of a message that cannot be read now is unknown, and no reason to have no metrics.
            with suppress(StorageError, OSError):
                self._known[key] = self._log.time_of(partition, offset)
        return self._known.setdefault(key, None)

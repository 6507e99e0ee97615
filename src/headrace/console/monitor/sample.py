"""One look at `/metrics`: the text of one or several servers as a `Sample`. Pure.

Counters of several servers are added. Gauges describe the shared store, or are bad news of one server, so the largest
is taken. Metrics that are not known here are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headrace.wire import metrics

TopicGroup = tuple[str, str]

# Metric of a topic, and the field of `TopicSample` it goes to.
_COUNTERS: Final = {
    "headrace_messages_in_total": "messages_in",
    "headrace_bytes_in_total": "bytes_in",
    "headrace_messages_out_total": "messages_out",
    "headrace_bytes_out_total": "bytes_out",
    "headrace_duplicates_total": "duplicates",
}
_GAUGES: Final = {
    "headrace_store_bytes": "bytes_stored",
    "headrace_topic_partitions": "partitions",
    "headrace_sources": "sources",
    "headrace_offsets_skipped": "offsets_skipped",
    "headrace_damaged_segments": "damaged_segments",
    "headrace_topic_failing": "is_failing",
}
_GROUP_GAUGES: Final = {
    "headrace_group_lag_messages": "lag_messages",
    "headrace_group_lag_seconds": "lag_seconds",
    "headrace_group_members": "members",
    "headrace_group_important": "is_important",
    "headrace_group_last_commit_timestamp_seconds": "last_commit",
}
_ENDS: Final = "headrace_partition_end_offset"


@dataclass(slots=True)
class TopicSample:
    """A topic at one moment. Counters count since the start of the servers; `messages` is None above a limit."""

    messages_in: float = 0.0
    bytes_in: float = 0.0
    messages_out: float = 0.0
    bytes_out: float = 0.0
    duplicates: float = 0.0
    bytes_stored: float = 0.0
    partitions: float = 0.0
    sources: float = 0.0
    offsets_skipped: float = 0.0
    damaged_segments: float = 0.0
    is_failing: float = 0.0
    messages: float | None = None


@dataclass(slots=True)
class GroupSample:
    """How far behind a group is, and when it last committed, in seconds since 1970; 0 if that is not known."""

    lag_messages: float = 0.0
    lag_seconds: float = 0.0
    members: float = 0.0
    is_important: float = 0.0
    last_commit: float = 0.0


@dataclass(slots=True)
class Sample:
    """All topics and groups at one moment, and the publish latency by topic as cumulative counts by upper bound.

    `others` holds metrics without labels, by name; `partition_lags` the lag in each partition, by topic, group and
    partition.
    """

    time: float
    topics: dict[str, TopicSample] = field(default_factory=dict)
    groups: dict[TopicGroup, GroupSample] = field(default_factory=dict)
    publish: dict[str, dict[float, float]] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)
    partition_lags: dict[tuple[str, str, str], float] = field(default_factory=dict)


def parse(texts: Iterable[str], time: float) -> Sample:
    """The sample in the texts of all servers."""
    sample = Sample(time)
    for text in texts:
        _take(sample, metrics.parse(text))
    return sample


def _take(sample: Sample, found: dict[str, list[metrics.Sample]]) -> None:
    """Add what one server says."""
    for name, target in _COUNTERS.items():
        for labels, value in found.get(name, ()):
            topic = sample.topics.setdefault(labels["topic"], TopicSample())
            setattr(topic, target, getattr(topic, target) + value)
    for name, target in _GAUGES.items():
        for labels, value in found.get(name, ()):
            topic = sample.topics.setdefault(labels["topic"], TopicSample())
            setattr(topic, target, max(getattr(topic, target), value))
    for name, target in _GROUP_GAUGES.items():
        for labels, value in found.get(name, ()):
            group = sample.groups.setdefault((labels["topic"], labels["group"]), GroupSample())
            setattr(group, target, max(getattr(group, target), value))
    for labels, value in found.get("headrace_publish_seconds_bucket", ()):
        buckets = sample.publish.setdefault(labels["topic"], {})
        bound = float(labels["le"])
        buckets[bound] = buckets.get(bound, 0.0) + value
    for name, samples in found.items():
        for labels, value in samples:
            if not labels:
                sample.others[name] = max(sample.others.get(name, value), value)
    _take_partitions(sample, found)
    for topic_name, messages in _messages(found).items():
        topic = sample.topics.setdefault(topic_name, TopicSample())
        topic.messages = max(topic.messages or 0.0, messages)


def _take_partitions(sample: Sample, found: dict[str, list[metrics.Sample]]) -> None:
    """How far each group is behind in each partition; a server that knows it to be further is right."""
    ends = {(labels["topic"], labels["partition"]): value for labels, value in found.get(_ENDS, ())}
    for labels, committed in found.get("headrace_group_committed_offset", ()):
        key = labels["topic"], labels["group"], labels["partition"]
        lag = max(0.0, ends.get((key[0], key[2]), committed) - committed)
        sample.partition_lags[key] = min(sample.partition_lags.get(key, lag), lag)


def _messages(found: dict[str, list[metrics.Sample]]) -> dict[str, float]:
    """The number of messages by topic: ends minus starts."""
    counted: dict[str, float] = {}
    for name, sign in ((_ENDS, 1), ("headrace_partition_start_offset", -1)):
        for labels, value in found.get(name, ()):
            counted[labels["topic"]] = counted.get(labels["topic"], 0.0) + sign * value
    return counted


def quantile(buckets: dict[float, float], share: float) -> float | None:
    """The value below which a share of what was counted lies, interpolated within its bucket; None without any."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted, below, low = total * share, 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted:
            if bound == float("inf"):
                return low
            inside = buckets[bound] - below
            return low + (bound - low) * ((wanted - below) / inside if inside else 1.0)
        below, low = buckets[bound], bound
    return low

"""One look at `/metrics`: the text of one or several servers as a `Sample`. Pure.

Counters of several servers are added. Gauges describe the shared store, so the largest is taken: a server may lag a
little behind another. Metrics that are not known here are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

TopicGroup = tuple[str, str]

_LINE: Final = re.compile(r'^(headrace_\w+?)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? (\S+)$', re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")

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
    "headrace_offsets_skipped": "offsets_skipped",
    "headrace_sources": "sources",
}
_PUBLISH_BUCKET: Final = "headrace_publish_seconds_bucket"
_START, _END = "headrace_partition_start_offset", "headrace_partition_end_offset"
_LAG_MESSAGES, _LAG_SECONDS = "headrace_group_lag_messages", "headrace_group_lag_seconds"
_IMPORTANT: Final = "headrace_group_important"


@dataclass(slots=True)
class TopicSample:
    """A topic at one moment. Counters count since the start of the servers; offsets are None above a limit."""

    messages_in: float = 0.0
    bytes_in: float = 0.0
    messages_out: float = 0.0
    bytes_out: float = 0.0
    duplicates: float = 0.0
    bytes_stored: float = 0.0
    offsets_skipped: float = 0.0
    sources: float = 0.0
    messages: float | None = None
    partitions: int | None = None


@dataclass(slots=True)
class GroupSample:
    """How far behind a group is."""

    lag_messages: float = 0.0
    lag_seconds: float = 0.0
    is_important: bool = False


@dataclass(slots=True)
class Sample:
    """All topics and groups at one moment, and the publish latency as cumulative counts by upper bound in seconds.

    `others` holds metrics without labels, by name.
    """

    time: float
    topics: dict[str, TopicSample] = field(default_factory=dict)
    groups: dict[TopicGroup, GroupSample] = field(default_factory=dict)
    publish: dict[str, dict[float, float]] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)


def parse(texts: Iterable[str], time: float) -> Sample:
    """The sample in the texts of all servers."""
    sample = Sample(time)
    for text in texts:
        starts: dict[str, float] = {}
        ends: dict[str, list[float]] = {}
        for name, labels, number in _LINE.findall(text):
            _take(sample, name, _labels(labels), float(number), starts, ends)
        for topic, counted in ends.items():
            taken = _topic(sample, topic)
            taken.messages = max(taken.messages or 0.0, sum(counted) - starts.get(topic, 0.0))
            taken.partitions = len(counted)
    return sample


def _take(
    sample: Sample,
    name: str,
    labels: dict[str, str],
    value: float,
    starts: dict[str, float],
    ends: dict[str, list[float]],
) -> None:
    topic = labels.get("topic")
    if topic is None:
        if not labels:
            sample.others[name] = max(sample.others.get(name, value), value)
    elif name in _COUNTERS:
        taken = _topic(sample, topic)
        setattr(taken, _COUNTERS[name], getattr(taken, _COUNTERS[name]) + value)
    elif name in _GAUGES:
        taken = _topic(sample, topic)
        setattr(taken, _GAUGES[name], max(getattr(taken, _GAUGES[name]), value))
    elif name == _START:
        starts[topic] = starts.get(topic, 0.0) + value
    elif name == _END:
        ends.setdefault(topic, []).append(value)
    elif name == _PUBLISH_BUCKET:
        buckets = sample.publish.setdefault(topic, {})
        bound = float(labels["le"])
        buckets[bound] = buckets.get(bound, 0.0) + value
    elif name in (_LAG_MESSAGES, _LAG_SECONDS, _IMPORTANT):
        group = sample.groups.setdefault((topic, labels["group"]), GroupSample())
        if name == _LAG_MESSAGES:
            group.lag_messages = max(group.lag_messages, value)
        elif name == _LAG_SECONDS:
            group.lag_seconds = max(group.lag_seconds, value)
        else:
            group.is_important = group.is_important or bool(value)


def _topic(sample: Sample, name: str) -> TopicSample:
    found = sample.topics.get(name)
    if found is None:
        found = sample.topics[name] = TopicSample()
    return found


def _labels(text: str) -> dict[str, str]:
    return {name: _unescaped(value) if "\\" in value else value for name, value in _LABEL.findall(text)}


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], value)


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

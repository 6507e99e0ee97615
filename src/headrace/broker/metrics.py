"""How a broker is doing, topic by topic, at one moment: what metrics are made of."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.broker.describe import describe_group
from headrace.broker.topics.registry import OpenTopic
from headrace.core.descriptions import GroupDescription
from headrace.core.errors import GroupNotFound
from headrace.core.histogram import Histogram


@dataclass(frozen=True, slots=True)
class TopicMetrics:
    """A topic's counters, histograms and sizes."""

    name: str
    counters: dict[str, int]
    offsets: dict[int, tuple[int, int]]
    groups: list[GroupDescription]
    bytes_stored: int
    queued_messages: int
    waiting_readers: int
    window_payloads: int
    sources: int
    offsets_skipped: int
    publish_seconds: Histogram
    fetch_seconds: Histogram
    sync_seconds: Histogram
    commit_messages: Histogram


def topic_metrics_of(opened: OpenTopic, now_us: int) -> TopicMetrics:
    """How a topic is doing."""
    topic, log = opened.topic, opened.topic.log
    offsets = topic.offsets()
    with topic.using():
        bytes_stored = log.bytes_stored()
    # In a shared store only a server that publishes to a topic has its state at hand, and no other loads it for this.
    state = log.peek()
    return TopicMetrics(
        name=topic.record.name,
        counters=topic.counters.snapshot(),
        offsets=dict(enumerate(zip(offsets.start.tolist(), offsets.end.tolist(), strict=True))),
        groups=_groups(opened, now_us),
        bytes_stored=bytes_stored,
        queued_messages=topic.queue.depth,
        waiting_readers=len(topic.watches),
        window_payloads=0 if state is None else len(state.window),
        sources=0 if state is None else len(state.sources),
        offsets_skipped=offsets.skipped,
        publish_seconds=topic.queue.seconds,
        fetch_seconds=topic.fetch_seconds,
        sync_seconds=log.sync_seconds,
        commit_messages=topic.commit_messages,
    )


def _groups(opened: OpenTopic, now_us: int) -> list[GroupDescription]:
    """All groups; one that is deleted meanwhile is passed over."""
    described = []
    for group in opened.groups.all():
        try:
            described.append(describe_group(opened, group.name, now_us))
        except GroupNotFound:
            continue
    return described

"""How a broker is doing, topic by topic, at one moment: what metrics are made of."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.broker.describe import describe_group
from headrace.broker.queue_api.registrations import is_consumer
from headrace.broker.topics.registry import OpenTopic
from headrace.core.descriptions import GroupDescription
from headrace.core.errors import GroupNotFound
from headrace.core.histogram import Histogram


@dataclass(frozen=True, slots=True)
class TopicMetrics:
    """A topic's counters, histograms and sizes. Consumers of the queue API are counted, and not described."""

    name: str
    counters: dict[str, int]
    offsets: dict[int, tuple[int, int]]
    groups: list[GroupDescription]
    queue_consumers: int
    bytes_stored: int
    queued_messages: int
    waiting_readers: int
    window_payloads: int
    sources: int
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
    groups = [group.name for group in opened.groups.all()]
    return TopicMetrics(
        name=topic.record.name,
        counters=topic.counters.snapshot(),
        offsets=dict(enumerate(zip(offsets.start.tolist(), offsets.end.tolist(), strict=True))),
        groups=_groups(opened, [name for name in groups if not is_consumer(name)], now_us),
        queue_consumers=sum(map(is_consumer, groups)),
        bytes_stored=bytes_stored,
        queued_messages=topic.queue.depth,
        waiting_readers=len(topic.watches),
        window_payloads=0 if state is None else len(state.window),
        sources=0 if state is None else len(state.sources),
        publish_seconds=topic.queue.seconds,
        fetch_seconds=topic.fetch_seconds,
        sync_seconds=log.sync_seconds,
        commit_messages=topic.commit_messages,
    )


def _groups(opened: OpenTopic, names: list[str], now_us: int) -> list[GroupDescription]:
    """Some groups; one that is deleted meanwhile is passed over."""
    described = []
    for name in names:
        try:
            described.append(describe_group(opened, name, now_us))
        except GroupNotFound:
            continue
    return described

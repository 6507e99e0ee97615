"""What topics and groups are doing, from metrics: totals from one sample, rates from two. Pure."""

from __future__ import annotations

import msgspec

from headrace.console.monitor.sample import Sample, TopicSample


class TopicActivity(msgspec.Struct, frozen=True):
    """A topic: messages and bytes per second in and out since the snapshot before, and its size."""

    topic: str
    messages_in: float
    bytes_in: float
    messages_out: float
    bytes_out: float
    bytes_stored: int
    partitions: int


class GroupActivity(msgspec.Struct, frozen=True):
    """A group: its lag, how fast that grows in messages per second, and its members."""

    topic: str
    group: str
    lag_messages: int
    lag_seconds: float
    lag_growth: float
    members: int


def topics(before: Sample, now: Sample) -> list[TopicActivity]:
    """All topics, the busiest first; after the restart of a server its counters are from 0."""
    seconds = max(now.time - before.time, 1e-9)
    found = []
    for name, each in now.topics.items():
        past = before.topics.get(name, TopicSample())
        rates = {field: max(0.0, getattr(each, field) - getattr(past, field)) / seconds for field in _TRAFFIC}
        # Counters go on for a while after their topic was deleted.
        if each.partitions:
            sizes = {"bytes_stored": int(each.bytes_stored), "partitions": int(each.partitions)}
            found.append(TopicActivity(topic=name, **rates, **sizes))
    return sorted(found, key=lambda each: (-each.messages_in - each.messages_out, each.topic))


def groups(before: Sample, now: Sample) -> list[GroupActivity]:
    """All groups, those that lag most first."""
    seconds = max(now.time - before.time, 1e-9)
    found = [
        GroupActivity(
            topic=topic,
            group=group,
            lag_messages=int(each.lag_messages),
            lag_seconds=each.lag_seconds,
            lag_growth=(each.lag_messages - before.groups.get((topic, group), each).lag_messages) / seconds,
            members=int(each.members),
        )
        for (topic, group), each in now.groups.items()
    ]
    return sorted(found, key=lambda each: (-each.lag_messages, each.topic, each.group))


def total(sample: Sample, metric: str) -> int | None:
    """The value of a metric of the whole store; None if no server reports it."""
    found = sample.others.get(metric)
    return None if found is None else int(found)


_TRAFFIC = ("messages_in", "bytes_in", "messages_out", "bytes_out")

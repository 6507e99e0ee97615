"""What topics and groups are doing, from metrics: totals from one snapshot, rates from two. Pure.

Counters are summed over the servers of a store; what they all report of the store is taken once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from headrace.wire.metrics import Sample


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One scrape of all servers: its time in seconds since 1970, and the samples of each metric."""

    seconds: float
    samples: Mapping[str, Sequence[Sample]]


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


def topics(before: Snapshot, now: Snapshot) -> list[TopicActivity]:
    """All topics, the busiest first."""
    sizes, partitions = _largest(now, "headrace_store_bytes"), _largest(now, "headrace_topic_partitions")
    rates = {name: _rates(before, now, f"headrace_{name}_total") for name in _TRAFFIC}
    found = [
        TopicActivity(
            topic=key[0],
            bytes_stored=int(sizes.get(key, 0)),
            partitions=int(count),
            **{name: rates[name].get(key, 0.0) for name in _TRAFFIC},
        )
        for key, count in partitions.items()
    ]
    return sorted(found, key=lambda each: (-each.messages_in - each.messages_out, each.topic))


def groups(before: Snapshot, now: Snapshot) -> list[GroupActivity]:
    """All groups, those that lag most first."""
    labels = ("topic", "group")
    lags, former = (_largest(each, "headrace_group_lag_messages", labels) for each in (now, before))
    ages, members = (_largest(now, f"headrace_group_{name}", labels) for name in ("lag_seconds", "members"))
    seconds = max(now.seconds - before.seconds, 1e-9)
    found = [
        GroupActivity(
            topic=key[0],
            group=key[1],
            lag_messages=int(lag),
            lag_seconds=ages.get(key, 0.0),
            lag_growth=(lag - former.get(key, lag)) / seconds,
            members=int(members.get(key, 0)),
        )
        for key, lag in lags.items()
    ]
    return sorted(found, key=lambda each: (-each.lag_messages, each.topic, each.group))


_TRAFFIC = ("messages_in", "bytes_in", "messages_out", "bytes_out")
_Key = tuple[str, ...]


def total(snapshot: Snapshot, metric: str) -> int | None:
    """The value of a metric of the whole store; None if no server reports it."""
    found = _largest(snapshot, metric, ()).get(())
    return None if found is None else int(found)


def _rates(before: Snapshot, now: Snapshot, metric: str) -> dict[_Key, float]:
    """How fast a counter grows; after the restart of a server it counts from 0."""
    seconds = max(now.seconds - before.seconds, 1e-9)
    past = _sums(before, metric)
    return {key: max(0.0, value - past.get(key, 0.0)) / seconds for key, value in _sums(now, metric).items()}


def _sums(snapshot: Snapshot, metric: str) -> dict[_Key, float]:
    sums: dict[_Key, float] = {}
    for labels, value in snapshot.samples.get(metric, ()):
        key = (labels.get("topic", ""),)
        sums[key] = sums.get(key, 0.0) + value
    return sums


def _largest(snapshot: Snapshot, metric: str, labels: Iterable[str] = ("topic",)) -> dict[_Key, float]:
    names = tuple(labels)
    values: dict[_Key, float] = {}
    for given, value in snapshot.samples.get(metric, ()):
        key = tuple(given.get(name, "") for name in names)
        values[key] = max(value, values.get(key, value))
    return values

"""Metrics for Prometheus, at most a second old.

Names follow Prometheus' rules: base units, `_total` for counters. Labels are topics, groups and partitions; nothing
of a message or a token ever is, and the name of a caller only where a limit refused it. Consumers of the queue API
are counted, not listed. Series of single partitions are left out above `metrics_partitions_max` of them. Histograms
of what never happened in a topic are left out, too.

The text is built in a thread, at most once a second for all callers. It is built here and not by a library, which took
seconds for thousands of topics or groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from typing import Final

from litestar import Response, get
from litestar.di import NamedDependency

from headrace.broker import Broker
from headrace.broker.metrics import TopicMetrics
from headrace.core.histogram import Histogram
from headrace.edge.bridge import Bridge
from headrace.edge.limits import Limits

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FRESH_SECONDS: Final = 1.0
# Placeholder for a topic's name; no name can be equal to it.
_TOPIC: Final = "\0"

# The broker's counter, the metric's name and its help text.
_TOPIC_COUNTERS: Final = (
    ("messages_written", "headrace_messages_in", "Messages written"),
    ("bytes_written", "headrace_bytes_in", "Bytes of values, keys and attributes written"),
    ("messages_read", "headrace_messages_out", "Messages read"),
    ("bytes_read", "headrace_bytes_out", "Bytes of values, keys and attributes read"),
    ("commits_written", "headrace_commits", "Commits written"),
)
_DUPLICATES: Final = (
    ("duplicates_by_source", "source"),
    ("duplicates_by_payload", "payload"),
    ("duplicates_by_commit_key", "commit_key"),
)
_UPKEEP: Final = (
    ("segments_dropped", "Segments deleted by retention"),
    ("segments_sealed", "Segments sealed"),
    ("members_expired", "Members whose session expired"),
    ("clock_jumps", "Detected jumps of the system clock"),
    ("links_expired", "Links of idle sources to partitions that expired"),
    ("sources_forgotten", "Idle sources forgotten above the limit of sources"),
    ("queue_consumers_forgotten", "Consumers of the PgQueue HTTP API removed because they were idle too long"),
    ("stages_expired", "Stages that expired before they were published"),
    ("window_cleanings", "Cleanings of the payload windows"),
    ("payloads_cleaned", "Payloads removed from the window after their time"),
    ("payloads_forgotten_early", "Payloads removed from the window before their time because it was full"),
)
_HISTOGRAMS: Final = (
    ("publish_seconds", "Time from accepting a publish to its acknowledgement"),
    ("fetch_seconds", "Time to read messages, without waiting for them"),
    ("sync_seconds", "Time to sync the disk"),
    ("commit_messages", "Messages per commit"),
)
_SIZES: Final = (
    ("queued_messages", "headrace_publish_queue_messages", "Messages waiting to be written"),
    ("waiting_readers", "headrace_waiting_readers", "Readers waiting for messages"),
    ("window_payloads", "headrace_window_payloads", "Payloads in the deduplication window"),
    ("sources", "headrace_sources", "Sources (producer id and message group id) remembered"),
    ("queue_consumers", "headrace_queue_consumers", "Consumers of the PgQueue HTTP API"),
    ("bytes_stored", "headrace_store_bytes", "Bytes on disk"),
    ("offsets_skipped", "headrace_offsets_skipped", "Offsets skipped because their messages were lost"),
)


@get("/metrics", opt={"operation": "metrics"}, media_type="text/plain", include_in_schema=False)
async def metrics(scrapes: NamedDependency[Scrapes]) -> Response[bytes]:
    """Metrics for Prometheus; needs the right to read all topics."""
    return Response(await scrapes.latest(), headers={"Content-Type": CONTENT_TYPE})


class Scrapes:
    """Caches the metrics for a second. Runs on the event loop."""

    def __init__(self, bridge: Bridge, partitions_max: int, limits: Limits) -> None:
        self._bridge = bridge
        self._limits = limits
        self._partitions_max = partitions_max
        self._made: asyncio.Task[bytes] | None = None
        self._fresh_until = 0.0

    async def latest(self) -> bytes:
        """The text, rebuilt if it is too old."""
        loop = asyncio.get_running_loop()
        made = self._made
        if made is None or (made.done() and (loop.time() >= self._fresh_until or made.exception() is not None)):
            made = self._made = loop.create_task(self._make())
        # Waiters share the task: one that is cancelled does not cancel it for the others.
        return await asyncio.shield(made)

    async def _make(self) -> bytes:
        text = await self._bridge.call(scrape, self._bridge.broker, self._partitions_max)
        text += "".join(_limited(self._limits)).encode()
        self._fresh_until = asyncio.get_running_loop().time() + FRESH_SECONDS
        return text


def scrape(broker: Broker, partitions_max: int | None = None) -> bytes:
    """All metrics of a broker now; slow with thousands of topics or groups."""
    topics, counters = broker.topic_metrics(partitions_max), broker.counters.snapshot()
    return "".join(_lines(topics, counters, partitions_max)).encode()


def _lines(topics: Sequence[TopicMetrics], counters: dict[str, int], partitions_max: int | None) -> Iterator[str]:
    names = [_escaped(topic.name) for topic in topics]
    labels = [f'{{topic="{name}"}}' for name in names]
    yield from _family("headrace_build_info", "gauge", "Version", [(f'{{version="{version("headrace")}"}}', 1)])
    for counter, name, text in _TOPIC_COUNTERS:
        values = [topic.counters.get(counter, 0) for topic in topics]
        yield from _family(f"{name}_total", "counter", text, zip(labels, values, strict=True))
    yield from _family("headrace_duplicates_total", "counter", "Duplicate messages dropped", _duplicates(topics, names))
    for counter, text in _UPKEEP:
        yield from _family(f"headrace_{counter}_total", "counter", text, [("", counters.get(counter, 0))])
    for attribute, text in _HISTOGRAMS:
        yield from _histogram(f"headrace_{attribute}", text, names, [getattr(topic, attribute) for topic in topics])
    for attribute, name, text in _SIZES:
        values = [getattr(topic, attribute) for topic in topics]
        yield from _family(name, "gauge", text, zip(labels, values, strict=True))
    if partitions_max is None or sum(len(topic.offsets) for topic in topics) <= partitions_max:
        yield from _offsets(topics, names)
    yield from _groups(topics, names)


def _limited(limits: Limits) -> Iterator[str]:
    counted = limits.limited().items()
    samples = ((f'{{principal="{_escaped(name)}",limit="{setting}"}}', count) for (name, setting), count in counted)
    yield from _family("headrace_limited_total", "counter", "Times a limit refused a caller or held it back", samples)
    slots = (("read", limits.flight_streams), ("upload", limits.flight_uploads), ("call", limits.flight_calls))
    open_now = ((f'{{kind="{kind}"}}', slot.total) for kind, slot in slots)
    yield from _family("headrace_flight_calls", "gauge", "Flight calls and streams under way", open_now)


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
    for labels, value in samples:
        yield f"{name}{labels} {value}\n"


def _duplicates(topics: Sequence[TopicMetrics], names: Sequence[str]) -> Iterator[tuple[str, int]]:
    for topic, name in zip(topics, names, strict=True):
        for counter, kind in _DUPLICATES:
            yield f'{{topic="{name}",kind="{kind}"}}', topic.counters.get(counter, 0)


def _histogram(name: str, text: str, topics: Sequence[str], histograms: Sequence[Histogram]) -> Iterator[str]:
    yield f"# HELP {name} {text}\n# TYPE {name} histogram\n"
    for topic, histogram in zip(topics, histograms, strict=True):
        below = list(accumulate(histogram.counts))
        if below[-1]:
            # Formatted at once for all buckets: thousands of topics have tens of thousands of them.
            lines = _template(name, histogram.bounds) % (*below, below[-1], histogram.sum)
            yield lines.replace(_TOPIC, topic)


@cache
def _template(name: str, bounds: Sequence[float]) -> str:
    """The lines of one topic's histogram, with places for its numbers."""
    labels = [*(str(float(bound)) for bound in bounds), "+Inf"]
    buckets = [f'{name}_bucket{{topic="{_TOPIC}",le="{label}"}} %d\n' for label in labels]
    return "".join(buckets) + f'{name}_count{{topic="{_TOPIC}"}} %d\n{name}_sum{{topic="{_TOPIC}"}} %r\n'


def _offsets(topics: Sequence[TopicMetrics], names: Sequence[str]) -> Iterator[str]:
    for place, end in enumerate(("start", "end")):
        samples = (
            (f'{{topic="{name}",partition="{partition}"}}', offsets[place])
            for topic, name in zip(topics, names, strict=True)
            for partition, offsets in topic.offsets.items()
        )
        yield from _family(f"headrace_partition_{end}_offset", "gauge", f"The {end} offset", samples)


def _groups(topics: Sequence[TopicMetrics], names: Sequence[str]) -> Iterator[str]:
    groups = [
        (f'topic="{name}",group="{_escaped(group.name)}"', group)
        for topic, name in zip(topics, names, strict=True)
        for group in topic.groups
    ]
    committed = (
        (f'{{{labels},partition="{partition}"}}', position)
        for labels, group in groups
        for partition, position in enumerate(group.positions or ())
    )
    yield from _family("headrace_group_committed_offset", "gauge", "The next offset to read", committed)
    important = ((f"{{{labels}}}", int(group.is_important)) for labels, group in groups)
    yield from _family(
        "headrace_group_important", "gauge", "1 if retention keeps messages until the group has read them", important
    )
    messages = ((f"{{{labels}}}", group.lag_messages) for labels, group in groups)
    yield from _family("headrace_group_lag_messages", "gauge", "Messages not read yet", messages)
    seconds = ((f"{{{labels}}}", group.lag_seconds) for labels, group in groups)
    yield from _family("headrace_group_lag_seconds", "gauge", "Age of the oldest message not read yet", seconds)


def _escaped(label: str) -> str:
    if label.isalnum():
        return label
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


HANDLERS = [metrics]

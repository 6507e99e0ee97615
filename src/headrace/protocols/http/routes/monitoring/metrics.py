"""Metrics for Prometheus, at most a second old. What they are is in `wire.metrics`; here they are written.

The number of series is bounded (`Bounds`): of more topics only the busiest have series, of more groups those that lag
most, and above a number of partitions none has series. Totals of the server count everything. Consumers of the queue
API are counted, not listed. Empty histograms are omitted.

The text is built in a thread, at most once a second for all callers. It is built here and not by a library, which took
seconds for thousands of topics or groups.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from heapq import nlargest
from importlib.metadata import version
from itertools import accumulate
from typing import Final

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency

from headrace.broker import Broker
from headrace.broker.monitoring.metrics import TopicMetrics
from headrace.core.health.findings import SEVERITIES, HealthFinding
from headrace.core.limits import FINDINGS_MAX, MICROSECONDS
from headrace.core.reports.histogram import SECONDS, Histogram
from headrace.core.reports.pipelines import PipelineDescription
from headrace.edge.bridge import Bridge
from headrace.edge.limits import Limits
from headrace.wire.metrics import METRICS

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FRESH_SECONDS: Final = 1.0
_PIPELINES_MAX: Final = 1_000
# Placeholder for a topic's name; no name can be equal to it.
_TOPIC: Final = "\0"
_TOPIC_LABEL: Final = f'topic="{_TOPIC}"'

# The broker's counter, and the metric of all topics; with `server_` it is that of the server.
_TRAFFIC: Final = (
    ("messages_written", "messages_in_total"),
    ("bytes_written", "bytes_in_total"),
    ("messages_read", "messages_out_total"),
    ("bytes_read", "bytes_out_total"),
)
_TOPIC_COUNTERS: Final = (*_TRAFFIC, ("commits_written", "commits_total"), ("conflicts", "conflicts_total"))
_DUPLICATES: Final = (
    ("duplicates_by_source", "source"),
    ("duplicates_by_payload", "payload"),
    ("duplicates_by_commit_key", "commit_key"),
)
# Counters whose metrics have the same names.
_MAINTENANCE: Final = (
    "segments_dropped",
    "segments_sealed",
    "members_expired",
    "clock_jumps",
    "links_expired",
    "sources_forgotten",
    "queue_consumers_forgotten",
    "pipelines_forgotten",
    "stages_expired",
    "window_cleanings",
    "payloads_cleaned",
    "payloads_forgotten_early",
    "archive_files_written",
    "archive_messages",
    "archive_merges",
    "archive_failures",
    "archive_swept",
)
_HISTOGRAMS: Final = ("publish_seconds", "fetch_seconds", "sync_seconds", "commit_messages")
# A field of a topic's metrics, and the metric; None is left out.
_SIZES: Final = (
    ("queued_messages", "publish_queue_messages"),
    ("waiting_readers", "waiting_readers"),
    ("window_payloads", "window_payloads"),
    ("sources", "sources"),
    ("queue_consumers", "queue_consumers"),
    ("bytes_stored", "store_bytes"),
    ("partitions", "topic_partitions"),
    ("retention_seconds", "topic_retention_seconds"),
    ("retention_bytes", "topic_retention_bytes"),
    ("damaged_segments", "damaged_segments"),
    ("offsets_skipped", "offsets_skipped"),
)
# The same of its archive, where it has one.
_ARCHIVE: Final = (
    ("files", "archive_files"),
    ("bytes", "archive_bytes"),
    ("lag_messages", "archive_lag_messages"),
    ("late_seconds", "archive_late_seconds"),
    ("is_failing", "archive_failing"),
)


@get("/metrics", opt={"operation": "metrics"}, media_type="text/plain", include_in_schema=False)
async def metrics(scrapes: NamedDependency[Scrapes]) -> Response[bytes]:
    """Metrics for Prometheus; needs the right to read all topics."""
    return Response(await scrapes.latest(), headers={"Content-Type": CONTENT_TYPE})


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many topics and groups have series, and up to how many partitions have; None: all."""

    topics_max: int | None = None
    groups_max: int | None = None
    partitions_max: int | None = None


class Scrapes:
    """Caches the metrics for a second. Runs on the event loop."""

    def __init__(self, bridge: Bridge, bounds: Bounds, limits: Limits) -> None:
        self._bridge = bridge
        self._limits = limits
        self._bounds = bounds
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
        text = await self._bridge.call(scrape, self._bridge.broker, self._bounds)
        text += "".join(_limited(self._limits)).encode()
        self._fresh_until = asyncio.get_running_loop().time() + FRESH_SECONDS
        return text


def scrape(broker: Broker, bounds: Bounds | None = None) -> bytes:
    """All metrics of a broker now; slow with thousands of topics or groups."""
    bounds = bounds or Bounds()
    return "".join(_lines(broker, broker.topic_metrics(bounds.partitions_max), bounds)).encode()


def _lines(broker: Broker, everything: Sequence[TopicMetrics], bounds: Bounds) -> Iterator[str]:
    yield from _server(broker, everything)
    topics = _busiest(everything, bounds.topics_max)
    names = [_escaped(topic.name) for topic in topics]
    labels = [f'{{topic="{name}"}}' for name in names]
    for counter, name in _TOPIC_COUNTERS:
        yield from _family(name, zip(labels, (topic.counters.get(counter, 0) for topic in topics), strict=True))
    yield from _family("duplicates_total", _duplicates(topics, names))
    for name in _HISTOGRAMS:
        yield from _histogram(name, _TOPIC_LABEL, names, [getattr(topic, name) for topic in topics])
    for field, name in _SIZES:
        values = zip(labels, (getattr(topic, field) for topic in topics), strict=True)
        yield from _family(name, ((label, value) for label, value in values if value is not None))
    for field, name in _ARCHIVE:
        archives = zip(labels, (topic.archive for topic in topics), strict=True)
        yield from _family(name, ((label, getattr(each, field)) for label, each in archives if each is not None))
    if bounds.partitions_max is None or sum(len(topic.offsets) for topic in topics) <= bounds.partitions_max:
        yield from _offsets(topics, names)
    yield from _groups(topics, names, bounds.groups_max)


def _server(broker: Broker, topics: Sequence[TopicMetrics]) -> Iterator[str]:
    """What has no topic."""
    counters, store = broker.counters.snapshot(), broker.store_metrics()
    yield from _family("build_info", [(f'{{version="{version("headrace")}"}}', 1)])
    yield from _family("start_timestamp_seconds", [("", broker.started_us / MICROSECONDS)])
    for counter, name in _TRAFFIC:
        yield from _family(f"server_{name}", [("", counters.get(counter, 0))])
    total = Histogram(SECONDS)
    for topic in topics:
        total.add(topic.publish_seconds)
    yield from _histogram("server_publish_seconds", "", [""], [total])
    for field in ("servers", "topics", "tokens", "tokens_expiring"):
        yield from _family(field, [("", getattr(store, field))])
    for field, size in (("disk_size_bytes", store.disk_size_bytes), ("disk_free_bytes", store.disk_free_bytes)):
        yield from _family(field, [] if size is None else [("", size)])
    yield from _family("topics_failing", [("", len(store.failing_topics))])
    yield from _family("topic_failing", ((f'{{topic="{_escaped(name)}"}}', 1) for name in store.failing_topics))
    yield from _findings(broker.describe_health().findings)
    yield from _pipelines(broker.list_pipelines())
    for counter in _MAINTENANCE:
        yield from _family(f"{counter}_total", [("", counters.get(counter, 0))])


def _findings(findings: Sequence[HealthFinding]) -> Iterator[str]:
    """The server's verdict; of very many findings the first, which are the most severe, have series."""
    counts = Counter(finding.severity for finding in findings)
    yield from _family("findings", ((f'{{severity="{severity}"}}', counts[severity]) for severity in SEVERITIES))
    yield from _family("finding", ((_finding_labels(finding), 1) for finding in findings[:FINDINGS_MAX]))


def _finding_labels(finding: HealthFinding) -> str:
    place = finding.place
    named = {
        "rule": finding.rule,
        "severity": finding.severity,
        "topic": place.topic,
        "group": place.group,
        "name": place.name,
    }
    return "{" + ",".join(f'{label}="{_escaped(value)}"' for label, value in named.items()) + "}"


def _pipelines(pipelines: Sequence[PipelineDescription]) -> Iterator[str]:
    """The pipelines that reported last; a topic has at most PIPELINES_PER_TOPIC_MAX of them."""
    newest = nlargest(_PIPELINES_MAX, pipelines, key=lambda pipeline: pipeline.reported_us)
    labelled = [(f'{{topic="{_escaped(each.topic)}",pipeline="{_escaped(each.name)}"}}', each) for each in newest]
    running = ((labels, +(each.state in ("starting", "running"))) for labels, each in labelled)
    yield from _family("pipeline_running", running)
    yield from _family("pipeline_failed", ((labels, +(each.state in ("failed", "lost"))) for labels, each in labelled))
    for field in ("messages_per_second", "lag_messages", "messages", "batch_seconds", "duplicates", "dead_letters"):
        values = ((labels, getattr(each.report, field)) for labels, each in labelled)
        yield from _family(f"pipeline_{field}", ((labels, value) for labels, value in values if value is not None))


def _busiest(topics: Sequence[TopicMetrics], topics_max: int | None) -> Sequence[TopicMetrics]:
    """The busiest topics, up to a limit: those with most messages in and out since the server started.

    Of topics that are equally busy, such as idle ones after a restart, those that groups read come first.
    """
    if topics_max is None or len(topics) <= topics_max:
        return topics
    counted = [
        (topic.counters.get("messages_written", 0) + topic.counters.get("messages_read", 0), len(topic.groups))
        for topic in topics
    ]
    kept = nlargest(topics_max, range(len(topics)), key=counted.__getitem__)
    return [topics[place] for place in sorted(kept)]


def _limited(limits: Limits) -> Iterator[str]:
    counted = limits.limited().items()
    samples = ((f'{{principal="{_escaped(name)}",limit="{setting}"}}', count) for (name, setting), count in counted)
    yield from _family("limited_total", samples)
    slots = (("read", limits.flight_streams), ("upload", limits.flight_uploads), ("call", limits.flight_calls))
    open_now = ((f'{{kind="{kind}"}}', slot.total) for kind, slot in slots)
    yield from _family("flight_calls", open_now)
    traffic = [(f'protocol="{name}"', each) for name, each in sorted(limits.traffic.items())]
    yield from _family("protocol_connections", ((f"{{{label}}}", each.connections) for label, each in traffic))
    answered = (
        (f'{{{label},request="{request}",error="{error}"}}', count)
        for label, each in traffic
        for (request, error), count in each.requests().items()
    )
    yield from _family("protocol_requests_total", answered)
    yield from _family("protocol_bytes_in_total", ((f"{{{label}}}", each.bytes_in) for label, each in traffic))
    yield from _family("protocol_bytes_out_total", ((f"{{{label}}}", each.bytes_out) for label, each in traffic))


def _family(name: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    metric = METRICS[f"headrace_{name}"]
    yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
    for labels, value in samples:
        yield f"{metric.name}{labels} {value}\n"


def _duplicates(topics: Sequence[TopicMetrics], names: Sequence[str]) -> Iterator[tuple[str, int]]:
    for topic, name in zip(topics, names, strict=True):
        for counter, kind in _DUPLICATES:
            yield f'{{topic="{name}",kind="{kind}"}}', topic.counters.get(counter, 0)


def _histogram(name: str, label: str, values: Sequence[str], histograms: Sequence[Histogram]) -> Iterator[str]:
    """A histogram for each value of a label; `label` has its place."""
    yield from _family(name, ())
    for value, histogram in zip(values, histograms, strict=True):
        below = list(accumulate(histogram.counts))
        if below[-1]:
            # Formatted at once for all buckets: thousands of topics have tens of thousands of them.
            lines = _template(f"headrace_{name}", label, histogram.bounds) % (*below, below[-1], histogram.sum)
            yield lines.replace(_TOPIC, value)


@cache
def _template(name: str, label: str, bounds: Sequence[float]) -> str:
    """The lines of one histogram, with places for its numbers."""
    uppers = [*(str(float(bound)) for bound in bounds), "+Inf"]
    separated = f"{label}," if label else ""
    buckets = [f'{name}_bucket{{{separated}le="{upper}"}} %d\n' for upper in uppers]
    labels = f"{{{label}}}" if label else ""
    return "".join(buckets) + f"{name}_count{labels} %d\n{name}_sum{labels} %r\n"


def _offsets(topics: Sequence[TopicMetrics], names: Sequence[str]) -> Iterator[str]:
    for place, end in enumerate(("start", "end")):
        samples = (
            (f'{{topic="{name}",partition="{partition}"}}', offsets[place])
            for topic, name in zip(topics, names, strict=True)
            for partition, offsets in topic.offsets.items()
        )
        yield from _family(f"partition_{end}_offset", samples)


def _groups(topics: Sequence[TopicMetrics], names: Sequence[str], groups_max: int | None) -> Iterator[str]:
    groups = [
        (f'topic="{name}",group="{_escaped(group.name)}"', group)
        for topic, name in zip(topics, names, strict=True)
        for group in topic.groups
    ]
    if groups_max is not None and len(groups) > groups_max:
        groups = nlargest(groups_max, groups, key=lambda entry: entry[1].lag_seconds)
    committed = (
        (f'{{{labels},partition="{partition}"}}', position)
        for labels, group in groups
        for partition, position in enumerate(group.positions or ())
    )
    yield from _family("group_committed_offset", committed)
    for field, name in (
        ("lag_messages", "group_lag_messages"),
        ("lag_seconds", "group_lag_seconds"),
        ("members", "group_members"),
        ("is_important", "group_important"),
    ):
        # A boolean is shown as 0 or 1.
        yield from _family(name, ((f"{{{labels}}}", +getattr(group, field)) for labels, group in groups))
    commits = (
        (f"{{{labels}}}", group.last_commit_us / MICROSECONDS)
        for labels, group in groups
        if group.last_commit_us is not None
    )
    yield from _family("group_last_commit_timestamp_seconds", commits)


def _escaped(label: str) -> str:
    if label.isalnum():
        return label
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


HANDLERS = [metrics]

"""What Prometheus sees: the broker's metrics at the moment of the scrape, nothing kept here.

Names follow Prometheus' rules: base units, `_total` for counters. Labels are topics, groups and partitions; nothing of
a message, a token or a caller ever is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any, Final

from litestar import Response, get
from litestar.di import NamedDependency
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from headrace.broker.metrics import TopicMetrics
from headrace.core.descriptions import GroupDescription
from headrace.core.histogram import Histogram
from headrace.core.rights import Right
from headrace.edge.bridge import Bridge

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | InfoMetricFamily

# The broker's counter, the metric's name and what it says.
_TOPIC_COUNTERS: Final = (
    ("messages_written", "headrace_messages_in", "Messages written"),
    ("bytes_written", "headrace_bytes_in", "Bytes of messages written"),
    ("messages_read", "headrace_messages_out", "Messages read"),
    ("bytes_read", "headrace_bytes_out", "Bytes of messages read"),
    ("commits_written", "headrace_commits", "Commits written"),
)
_DUPLICATES: Final = (
    ("duplicates_by_source", "source"),
    ("duplicates_by_payload", "payload"),
    ("duplicates_by_commit_key", "commit_key"),
)
_UPKEEP: Final = (
    ("segments_dropped", "Segments dropped by retention"),
    ("segments_sealed", "Segments sealed"),
    ("members_expired", "Members whose session ran out"),
    ("links_expired", "Links of idle sources that were forgotten"),
    ("sources_forgotten", "Idle sources that were forgotten"),
    ("stages_expired", "Stages that nobody published in time"),
    ("window_cleanings", "Times the payload windows were cleaned"),
    ("payloads_cleaned", "Payloads whose time in the window was over"),
    ("payloads_forgotten_early", "Payloads forgotten before their time, since the window was full"),
)
_HISTOGRAMS: Final = (
    ("publish_seconds", "From accepting a publish to its acknowledgement"),
    ("fetch_seconds", "Reading messages, waiting for them not counted"),
    ("sync_seconds", "Waiting for the device"),
    ("commit_messages", "Messages in a commit"),
)
_SIZES: Final = (
    ("queued_messages", "headrace_publish_queue_messages", "Messages that wait to be written"),
    ("waiting_readers", "headrace_waiting_readers", "Readers that wait for messages"),
    ("window_payloads", "headrace_window_payloads", "Payloads in the deduplication window"),
    ("sources", "headrace_sources", "Sources that are remembered"),
    ("bytes_stored", "headrace_store_bytes", "Bytes on disk"),
    ("offsets_skipped", "headrace_offsets_skipped", "Offsets that are absent because their messages were lost"),
)


@get("/metrics", opt={"right": Right.READ}, media_type="text/plain", include_in_schema=False)
async def metrics(bridge: NamedDependency[Bridge]) -> Response[bytes]:
    """Everything Prometheus wants to know; needs the right to read all topics."""
    registry = CollectorRegistry(auto_describe=False)
    topic_metrics = await bridge.call(bridge.broker.topic_metrics)
    registry.register(_Vitals(topic_metrics, bridge.broker.counters.snapshot()))
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


class _Vitals(Collector):
    """Vitals as metric families."""

    def __init__(self, topics: list[TopicMetrics], counters: dict[str, int]) -> None:
        self._topics = topics
        self._counters = counters

    def collect(self) -> Iterator[Family]:
        yield InfoMetricFamily("headrace_build", "Version", value={"version": version("headrace")})
        for counter, name, text in _TOPIC_COUNTERS:
            yield _family(CounterMetricFamily(name, text, labels=["topic"]), self._per_topic(counter))
        duplicates = CounterMetricFamily("headrace_duplicates", "Messages dropped", labels=["topic", "kind"])
        yield _family(duplicates, self._duplicates())
        for counter, text in _UPKEEP:
            yield CounterMetricFamily(f"headrace_{counter}", text, value=self._counters.get(counter, 0))
        for attribute, text in _HISTOGRAMS:
            yield self._histogram(attribute, text)
        for attribute, name, text in _SIZES:
            values = (([topic.name], getattr(topic, attribute)) for topic in self._topics)
            yield _family(GaugeMetricFamily(name, text, labels=["topic"]), values)
        yield from self._offsets()
        yield from self._groups()

    def _per_topic(self, counter: str) -> Iterator[tuple[list[str], int]]:
        return (([topic.name], topic.counters.get(counter, 0)) for topic in self._topics)

    def _duplicates(self) -> Iterator[tuple[list[str], int]]:
        return (
            ([topic.name, kind], topic.counters.get(counter, 0))
            for topic in self._topics
            for counter, kind in _DUPLICATES
        )

    def _histogram(self, attribute: str, text: str) -> HistogramMetricFamily:
        family = HistogramMetricFamily(f"headrace_{attribute}", text, labels=["topic"])
        for topic in self._topics:
            histogram: Histogram = getattr(topic, attribute)
            buckets = [("+Inf" if bound == float("inf") else str(bound), n) for bound, n in histogram.cumulative()]
            family.add_metric([topic.name], buckets, histogram.sum)
        return family

    def _offsets(self) -> Iterator[Family]:
        labels = ["topic", "partition"]
        for place, name in enumerate(("start", "end")):
            family = GaugeMetricFamily(f"headrace_partition_{name}_offset", f"The {name} offset", labels=labels)
            values = (
                ([topic.name, str(partition)], offsets[place])
                for topic in self._topics
                for partition, offsets in topic.offsets.items()
            )
            yield _family(family, values)

    def _groups(self) -> Iterator[Family]:
        groups = [group for topic in self._topics for group in topic.groups]
        committed = GaugeMetricFamily(
            "headrace_group_committed_offset", "The next offset to read", labels=["topic", "group", "partition"]
        )
        yield _family(committed, _positions(groups))
        for attribute, text in (("lag_messages", "Messages yet to read"), ("lag_seconds", "Age of the oldest of them")):
            family = GaugeMetricFamily(f"headrace_group_{attribute}", text, labels=["topic", "group"])
            yield _family(family, (([group.topic, group.name], getattr(group, attribute)) for group in groups))


def _positions(groups: Iterable[GroupDescription]) -> Iterator[tuple[list[str], int]]:
    return (
        ([group.topic, group.name, str(partition)], progress.position)
        for group in groups
        for partition, progress in group.progress.items()
    )


def _family(family: Any, values: Iterable[tuple[list[str], float]]) -> Any:
    for labels, value in values:
        family.add_metric(labels, value)
    return family


HANDLERS = [metrics]

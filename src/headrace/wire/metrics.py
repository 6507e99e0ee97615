"""Every metric of `/metrics`: its name, type, labels and help text; and how to read the text.

The server writes what stands here and nothing else, and docs/metrics.md lists it. Names follow Prometheus' rules: base
units, `_total` for counters. Counters start at 0 when the server starts. Labels are names of topics, groups, partitions
and pipelines; never anything of a message, and the name of a token only where a limit held it back or it expires.

Pure: no I/O. `parse` reads what this server writes, for the console and `headrace status`, which need no other library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram"]
# The labels of a sample, and its value.
Sample = tuple[dict[str, str], float]


class Metric(msgspec.Struct, frozen=True):
    """A metric. `is_of_store`: servers that share a store all report the same value, so take the maximum of them."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    is_of_store: bool = False


_TOPIC: Final = ("topic",)
_GROUP: Final = ("topic", "group")
_PIPELINE: Final = ("topic", "pipeline")
_PARTITION: Final = ("topic", "partition")
_NONE: Final = ()


def _counter(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(f"headrace_{name}_total", "counter", labels, text)


def _gauge(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(f"headrace_{name}", "gauge", labels, text)


def _of_store(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(f"headrace_{name}", "gauge", labels, text, is_of_store=True)


def _histogram(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(f"headrace_{name}", "histogram", labels, text)


_ALL: Final = (
    # The server
    _gauge("build_info", ("version",), "Always 1; the label has the version of the server"),
    _gauge("start_timestamp_seconds", _NONE, "When the server started, in seconds since 1970"),
    _of_store("servers", _NONE, "Running servers of the store"),
    _counter("server_messages_in", _NONE, "Messages written, over all topics"),
    _counter("server_bytes_in", _NONE, "Bytes of values, keys and attributes written, over all topics"),
    _counter("server_messages_out", _NONE, "Messages read, over all topics"),
    _counter("server_bytes_out", _NONE, "Bytes of values, keys and attributes read, over all topics"),
    _histogram(
        "server_publish_seconds", _NONE, "Time from accepting a publish to its acknowledgement, over all topics"
    ),
    # The store
    _of_store("topics", _NONE, "Topics in the store"),
    _of_store("disk_size_bytes", _NONE, "Size of the file system of the store; missing if it is not on one"),
    _of_store("disk_free_bytes", _NONE, "Free space of the file system of the store; missing if it is not on one"),
    _of_store("tokens", _NONE, "Valid tokens"),
    _of_store(
        "tokens_expiring", _NONE, "Valid tokens in the last tenth of their life, at most 7 days, without a successor"
    ),
    # The server's verdict on itself
    _gauge("findings", ("severity",), "Findings of the server: what needs attention, or could not be judged"),
    _gauge(
        "finding",
        ("rule", "severity", "topic", "group", "name"),
        "1 for each finding; the name is that of a pipeline, a token, or the file of a certificate",
    ),
    # Topics
    _counter("messages_in", _TOPIC, "Messages written"),
    _counter("bytes_in", _TOPIC, "Bytes of values, keys and attributes written"),
    _counter("messages_out", _TOPIC, "Messages read"),
    _counter("bytes_out", _TOPIC, "Bytes of values, keys and attributes read"),
    _counter("commits", _TOPIC, "Commits written; publishers that wait at the same time share one"),
    _counter("duplicates", ("topic", "kind"), "Messages dropped as duplicates, by source, payload or commit key"),
    _counter("conflicts", _TOPIC, "Messages not written because their seqno was used for another message"),
    _histogram("publish_seconds", _TOPIC, "Time from accepting a publish to its acknowledgement"),
    _histogram("fetch_seconds", _TOPIC, "Time to read messages, without waiting for new ones"),
    _histogram("sync_seconds", _TOPIC, "Time to sync a commit to the disk"),
    _histogram("commit_messages", _TOPIC, "Messages per commit"),
    _gauge("publish_queue_messages", _TOPIC, "Messages waiting to be written"),
    _gauge("waiting_readers", _TOPIC, "Readers waiting for messages"),
    _gauge("window_payloads", _TOPIC, "Payloads in the deduplication window"),
    _gauge("sources", _TOPIC, "Sources (producer id and message group id) remembered"),
    _of_store("queue_consumers", _TOPIC, "Consumers of the PgQueue HTTP API"),
    _of_store("store_bytes", _TOPIC, "Bytes that the topic takes in the store"),
    _of_store("topic_partitions", _TOPIC, "Partitions of the topic"),
    _of_store("topic_retention_seconds", _TOPIC, "Age at which messages are deleted; missing if there is no limit"),
    _of_store("topic_retention_bytes", _TOPIC, "Size above which messages are deleted; missing if there is no limit"),
    _of_store("partition_start_offset", _PARTITION, "Offset of the oldest message"),
    _of_store("partition_end_offset", _PARTITION, "Offset that the next message will get"),
    # What is wrong with topics
    _gauge("topics_failing", _NONE, "Topics that accept no messages until the server is restarted"),
    _gauge("topic_failing", _TOPIC, "1 for each topic that accepts no messages until the server is restarted"),
    _gauge("damaged_segments", _TOPIC, "Segments with damaged bytes, found at start or when they were read"),
    _gauge("offsets_skipped", _TOPIC, "Offsets skipped because their messages were lost"),
    # Groups
    _of_store("group_lag_messages", _GROUP, "Messages that the group has not read yet"),
    _of_store("group_lag_seconds", _GROUP, "Age of the oldest message that the group has not read yet"),
    _of_store("group_members", _GROUP, "Members of the group, or its fixed size"),
    _of_store("group_important", _GROUP, "1 if retention keeps messages until the group has read them"),
    _gauge(
        "group_last_commit_timestamp_seconds",
        _GROUP,
        "When the group last committed offsets at this server, in seconds since 1970; missing if it has not yet",
    ),
    _of_store("group_committed_offset", (*_GROUP, "partition"), "Next offset that the group will read"),
    # Pipelines
    _of_store("pipeline_running", _PIPELINE, "1 while a run of the pipeline reports, 0 after it ended or was lost"),
    _of_store("pipeline_failed", _PIPELINE, "1 if the last run of the pipeline failed or was lost"),
    _of_store("pipeline_messages_per_second", _PIPELINE, "Messages per second, as the pipeline last reported"),
    _of_store("pipeline_lag_messages", _PIPELINE, "Unread messages of its topic, as the pipeline last reported"),
    _of_store("pipeline_messages", _PIPELINE, "Messages that the last run of the pipeline has read"),
    _of_store("pipeline_batch_seconds", _PIPELINE, "Duration of the last batch, as the pipeline last reported"),
    _of_store("pipeline_duplicates", _PIPELINE, "Messages of the last run that topics dropped because they had them"),
    _of_store("pipeline_dead_letters", _PIPELINE, "Messages that the last run of the pipeline could not process"),
    # The archive, of topics that have one
    _of_store("archive_files", _TOPIC, "Files of the topic in the archive"),
    _of_store("archive_bytes", _TOPIC, "Bytes of the files of the topic in the archive"),
    _of_store("archive_lag_messages", _TOPIC, "Messages that are not archived yet"),
    _of_store("archive_late_seconds", _TOPIC, "For how long archiving is overdue; 0 if nothing is due"),
    _gauge("archive_failing", _TOPIC, "1 if the last attempt of this server to archive the topic failed"),
    _counter("archive_files_written", _NONE, "Files written to the archive, without merged ones"),
    _counter("archive_messages", _NONE, "Messages written to the archive"),
    _counter("archive_merges", _NONE, "Files of the archive made of several small ones"),
    _counter("archive_failures", _NONE, "Attempts to archive a topic that failed"),
    _counter("archive_swept", _NONE, "Files of the archive deleted because they were replaced, expired or strays"),
    # Maintenance
    _counter("segments_dropped", _NONE, "Segments deleted by retention"),
    _counter("segments_sealed", _NONE, "Segments completed and indexed"),
    _counter("members_expired", _NONE, "Members whose session expired"),
    _counter("clock_jumps", _NONE, "Detected jumps of the system clock"),
    _counter("links_expired", _NONE, "Links of idle sources to partitions that expired"),
    _counter("sources_forgotten", _NONE, "Idle sources forgotten above the limit of sources"),
    _counter("queue_consumers_forgotten", _NONE, "Consumers of the PgQueue HTTP API deleted because they were idle"),
    _counter("pipelines_forgotten", _NONE, "Pipelines removed from the list because they were silent for 7 days"),
    _counter("stages_expired", _NONE, "Stages that expired before they were published"),
    _counter("window_cleanings", _NONE, "Cleanings of the deduplication windows"),
    _counter("payloads_cleaned", _NONE, "Payloads removed from the deduplication window after their time"),
    _counter("payloads_forgotten_early", _NONE, "Payloads removed early because the deduplication window was full"),
    # Callers
    _counter("limited", ("principal", "limit"), "Times a limit refused a caller or held it back"),
    _gauge("flight_calls", ("kind",), "Flight calls and streams in progress: read, upload or call"),
    _gauge("protocol_connections", ("protocol",), "Open connections, of protocols that count them: Kafka"),
    _counter(
        "protocol_requests", ("protocol", "request", "error"), "Requests answered, and the first error in the answer"
    ),
    _counter("protocol_bytes_in", ("protocol",), "Bytes of requests"),
    _counter("protocol_bytes_out", ("protocol",), "Bytes of answers"),
)

METRICS: Final = {metric.name: metric for metric in _ALL}


def series_of(name: str) -> tuple[str, ...]:
    """The names of the samples of a metric."""
    if METRICS[name].kind == "histogram":
        return f"{name}_bucket", f"{name}_count", f"{name}_sum"
    return (name,)


_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?$")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?')
_ESCAPE: Final = re.compile(r"\\(.)")


def parse(text: str) -> dict[str, list[Sample]]:
    """The samples of a page of metrics by name; lines that are no samples are skipped."""
    found: dict[str, list[Sample]] = {}
    for name, labels, value in _samples(text):
        found.setdefault(name, []).append((labels, value))
    return found


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.split("\n"):
        matched = None if line.startswith("#") else _LINE.match(line)
        if matched is not None:
            labels = {label: _ESCAPE.sub(_unescaped, value) for label, value in _LABEL.findall(matched[2] or "")}
            yield matched[1], labels, float(matched[3])


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]

"""CreateTopic, AlterTopic, DropTopic and DescribeTopic.

Partitions are those that are active at least; they grow, and never shrink or split: what clients say of splits is kept
and given back. The size that retention keeps of a partition becomes that of the topic.
"""

from __future__ import annotations

import time
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from headrace.broker import Broker
from headrace.core.errors import TopicNotFound
from headrace.core.limits import MICROSECONDS, TIME_US_MAX
from headrace.core.reports.descriptions import TopicDescription
from headrace.edge.access import Principal
from headrace.protocols.ydb.call import YdbCall
from headrace.protocols.ydb.names import topic_of
from headrace.protocols.ydb.services import kept
from headrace.protocols.ydb.services.directories import entry
from headrace.protocols.ydb.services.discovery import node_of, nodes_of_partitions
from headrace.protocols.ydb.statuses import Status, YdbRefusal
from headrace.protocols.ydb.stubs import scheme, topic

_MIB: Final = 1 << 20
# Of each partition: it stays where it is.
GENERATION: Final = 1
_TOPIC: Final = scheme.Entry.Type.TOPIC
_DISABLED: Final = topic.AutoPartitioningStrategy.AUTO_PARTITIONING_STRATEGY_DISABLED
_DATA_STREAMS: Final = "data-streams"


async def create_topic(call: YdbCall, request: topic.CreateTopicRequest) -> topic.CreateTopicResult:
    """Create a topic with its consumers; one that exists is left as it is."""
    await call.parts.bridge.call(_create, call.parts.bridge.broker, call.principal, request, _name(call, request.path))
    return topic.CreateTopicResult()


async def alter_topic(call: YdbCall, request: topic.AlterTopicRequest) -> topic.AlterTopicResult:
    """Change what the request has."""
    await call.parts.bridge.call(_alter, call.parts.bridge.broker, call.principal, request, _name(call, request.path))
    return topic.AlterTopicResult()


async def drop_topic(call: YdbCall, request: topic.DropTopicRequest) -> topic.DropTopicResult:
    """Delete a topic."""
    name = _name(call, request.path)
    call.principal.require("delete_topic", name)
    with call.principal.recording():
        call.principal.require("delete_topic", name)
        await call.parts.bridge.call(call.parts.bridge.broker.delete_topic, name)
    return topic.DropTopicResult()


async def describe_topic(call: YdbCall, request: topic.DescribeTopicRequest) -> topic.DescribeTopicResult:
    """Everything as it was created, with its partitions."""
    broker, name = call.parts.bridge.broker, _name(call, request.path)
    call.principal.require("describe_topic", name)
    return await call.parts.bridge.call(_described, broker, name, request)


def _name(call: YdbCall, path: str) -> str:
    return topic_of(path, call.database)


def _create(broker: Broker, principal: Principal, request: topic.CreateTopicRequest, name: str) -> None:
    principal.require("create_topic", name)
    for consumer in request.consumers:
        _require_consumer(principal, name, consumer)
    try:
        broker.describe_topic(name)
        principal.forget_changes()
        return
    except TopicNotFound:
        pass
    settings: dict[str, Any] = {
        "retention_seconds": seconds_of(request.retention_period) or kept.RETENTION_SECONDS_DEFAULT,
        "codecs": kept.codecs_of(list(request.supported_codecs.codecs)),
        "message_bytes_max": kept.MESSAGE_BYTES_MAX,
        "partition_write_bytes_per_second": request.partition_write_speed_bytes_per_second or None,
        "partition_write_burst_bytes": request.partition_write_burst_bytes or None,
        "annotations": kept.annotated_topic(request),
    }
    partitions = max(1, request.partitioning_settings.min_active_partitions)
    if request.retention_storage_mb:
        settings["retention_bytes"] = request.retention_storage_mb * _MIB * partitions
    for consumer in request.consumers:
        settings["annotations"] |= kept.annotated_consumer(consumer)
    with principal.recording():
        broker.create_topic(name, partitions, **settings)
        for consumer in request.consumers:
            _register(broker, name, consumer)


def _require_consumer(principal: Principal, name: str, consumer: topic.Consumer) -> None:
    if not consumer.name:
        raise YdbRefusal(Status.BAD_REQUEST, "a consumer needs a name")
    principal.require("change_group" if consumer.important else "register_group", name, consumer.name)


def _register(broker: Broker, name: str, consumer: topic.Consumer) -> None:
    read_from = microseconds_of(consumer.read_from)
    broker.register_group(name, consumer.name, None, consumer.important, read_from or "earliest")


def _alter(broker: Broker, principal: Principal, request: topic.AlterTopicRequest, name: str) -> None:
    principal.require("alter_topic", name)
    present = broker.describe_topic(name)
    wanted = kept.kept_topic(present.settings.annotations)
    settings: dict[str, Any] = {}
    partitions = _grown(request.alter_partitioning_settings, wanted, present)
    if request.HasField("set_retention_period"):
        settings["retention_seconds"] = seconds_of(request.set_retention_period) or kept.RETENTION_SECONDS_DEFAULT
    if request.HasField("set_retention_storage_mb"):
        wanted.retention_storage_mb = request.set_retention_storage_mb
    if wanted.retention_storage_mb or request.HasField("set_retention_storage_mb"):
        count = partitions or present.partitions
        settings["retention_bytes"] = wanted.retention_storage_mb * _MIB * count or None
    if request.HasField("set_supported_codecs"):
        settings["codecs"] = kept.codecs_of(list(request.set_supported_codecs.codecs))
        wanted.supported_codecs.CopyFrom(request.set_supported_codecs)
    if request.HasField("set_partition_write_speed_bytes_per_second"):
        speed = request.set_partition_write_speed_bytes_per_second
        settings["partition_write_bytes_per_second"] = speed or None
    if request.HasField("set_partition_write_burst_bytes"):
        settings["partition_write_burst_bytes"] = request.set_partition_write_burst_bytes or None
    if request.set_metering_mode:
        wanted.metering_mode = request.set_metering_mode
    _change_texts(wanted.attributes, request.alter_attributes)
    annotations = kept.annotated_topic(wanted)
    with principal.recording():
        principal.require("alter_topic", name)
        for consumer in request.add_consumers:
            _require_consumer(principal, name, consumer)
            annotations |= kept.annotated_consumer(consumer)
        for altered in request.alter_consumers:
            _require_known(present, altered.name)
            principal.require("change_group", name, altered.name)
            annotations |= _altered(present, altered)
        for dropped in request.drop_consumers:
            _require_known(present, dropped)
            principal.require("delete_group", name, dropped)
            annotations |= kept.dropped_consumer(dropped)
        broker.alter_topic(name, partitions, **settings, annotations=annotations)
        for consumer in request.add_consumers:
            _register(broker, name, consumer)
        for altered in request.alter_consumers:
            if altered.HasField("set_important"):
                broker.register_group(name, altered.name, None, altered.set_important)
        for dropped in request.drop_consumers:
            broker.delete_group(name, dropped)


def _require_known(present: TopicDescription, consumer: str) -> None:
    if consumer not in present.groups:
        raise unknown_consumer(present.name, consumer)


def unknown_consumer(name: str, consumer: str) -> YdbRefusal:
    """A consumer is made with its topic, and not by reading."""
    rule = "add it to the topic first"
    return YdbRefusal(Status.SCHEME_ERROR, f"topic {name[:100]!r} has no consumer {consumer[:100]!r}: {rule}")


def _altered(present: TopicDescription, change: topic.AlterConsumer) -> dict[str, str | None]:
    consumer = kept.kept_consumer(present.settings.annotations, change.name)
    if change.HasField("set_read_from"):
        consumer.read_from.CopyFrom(change.set_read_from)
    if change.HasField("set_supported_codecs"):
        consumer.supported_codecs.CopyFrom(change.set_supported_codecs)
    _change_texts(consumer.attributes, change.alter_attributes)
    return kept.annotated_consumer(consumer)


def _change_texts(texts: Any, changes: Any) -> None:
    """Change attributes; an empty text takes one away."""
    for name, text in changes.items():
        if text:
            texts[name] = text
        else:
            texts.pop(name, None)


def _grown(
    change: topic.AlterPartitioningSettings, wanted: topic.CreateTopicRequest, present: TopicDescription
) -> int | None:
    """The number of partitions to grow to, if there is one; what is said of it otherwise is kept."""
    settings = wanted.partitioning_settings
    if change.HasField("set_max_active_partitions"):
        settings.max_active_partitions = change.set_max_active_partitions
    if change.HasField("set_partition_count_limit"):
        settings.partition_count_limit = change.set_partition_count_limit
    if change.HasField("alter_auto_partitioning_settings"):
        auto, altered = settings.auto_partitioning_settings, change.alter_auto_partitioning_settings
        if altered.HasField("set_strategy"):
            auto.strategy = altered.set_strategy
        speed, changed = auto.partition_write_speed, altered.set_partition_write_speed
        if changed.HasField("set_stabilization_window"):
            speed.stabilization_window.CopyFrom(changed.set_stabilization_window)
        if changed.HasField("set_up_utilization_percent"):
            speed.up_utilization_percent = changed.set_up_utilization_percent
        if changed.HasField("set_down_utilization_percent"):
            speed.down_utilization_percent = changed.set_down_utilization_percent
    if not change.HasField("set_min_active_partitions"):
        return None
    least = settings.min_active_partitions = change.set_min_active_partitions
    return max(1, least) if max(1, least) != present.partitions else None


# Descriptions


def _described(broker: Broker, name: str, request: topic.DescribeTopicRequest) -> topic.DescribeTopicResult:
    found = broker.describe_topic(name)
    settings, given = found.settings, kept.kept_topic(found.settings.annotations)
    node = node_of(broker.servers.id)
    result = topic.DescribeTopicResult(
        self=entry(found.name, _TOPIC),
        partitioning_settings=partitioning_of(given, found.partitions),
        retention_period=Duration(seconds=settings.retention_seconds or 0),
        retention_storage_mb=given.retention_storage_mb or (settings.retention_bytes or 0) // found.partitions // _MIB,
        supported_codecs=topic.SupportedCodecs(codecs=kept.codec_numbers(given, settings.codecs)),
        partition_write_speed_bytes_per_second=settings.partition_write_bytes_per_second or kept.SPEED_DEFAULT,
        partition_write_burst_bytes=settings.partition_write_burst_bytes or kept.SPEED_DEFAULT,
        attributes=dict(given.attributes),
        metering_mode=given.metering_mode,
    )
    # Of a shared store, as another server has just changed them.
    for group in broker.topics.find(found.name).groups.all():
        result.consumers.append(consumer_of(found, group.name, group.important))
    stats = partition_stats(broker, found, node) if request.include_stats else None
    nodes = nodes_of_partitions(broker, found.partitions) if request.include_location else []
    for partition in range(found.partitions):
        info = result.partitions.add(partition_id=partition, active=True)
        if stats is not None:
            info.partition_stats.CopyFrom(stats[partition])
        if request.include_location:
            info.partition_location.CopyFrom(topic.PartitionLocation(node_id=nodes[partition], generation=GENERATION))
    if stats is not None:
        total = result.topic_stats
        total.store_size_bytes = found.bytes_stored
        total.min_last_write_time.CopyFrom(min((each.last_write_time for each in stats), key=lambda at: at.seconds))
        total.max_write_time_lag.CopyFrom(Duration())
        total.bytes_written.CopyFrom(topic.MultipleWindowsStat())
    return result


def partitioning_of(given: topic.CreateTopicRequest, partitions: int) -> topic.PartitioningSettings:
    """The settings of partitions as they were given; the number that there is, if that was changed elsewhere."""
    settings = topic.PartitioningSettings()
    settings.CopyFrom(given.partitioning_settings)
    if max(1, settings.min_active_partitions) != partitions:
        settings.min_active_partitions = partitions
    auto = settings.auto_partitioning_settings
    auto.strategy = auto.strategy or _DISABLED
    auto.partition_write_speed.SetInParent()
    return settings


def consumer_of(found: TopicDescription, group: str, important: bool) -> topic.Consumer:
    """A consumer with what is kept of it."""
    consumer = kept.kept_consumer(found.settings.annotations, group)
    consumer.important = important
    consumer.supported_codecs.SetInParent()
    consumer.read_from.SetInParent()
    if "_service_type" not in consumer.attributes:
        consumer.attributes["_service_type"] = _DATA_STREAMS
    stats = consumer.consumer_stats
    for name in ("min_partitions_last_read_time", "max_read_time_lag", "max_write_time_lag", "max_committed_time_lag"):
        getattr(stats, name).SetInParent()
    stats.bytes_read.SetInParent()
    return consumer


def partition_stats(broker: Broker, found: TopicDescription, node: int) -> list[topic.PartitionStats]:
    """What is known of each partition; every part is there, since Go's client looks at it."""
    last = {partition: end - 1 for partition, (start, end) in found.offsets.items() if end > start}
    times = broker.reader(found.name).times_of(last)
    now_us = time.time_ns() // 1000
    stats = []
    for partition, (start, end) in sorted(found.offsets.items()):
        written_us = times.get(partition, found.created_us)
        stats.append(
            topic.PartitionStats(
                partition_offsets=topic.OffsetsRange(start=start, end=end),
                store_size_bytes=found.bytes_stored // max(1, len(last)) if partition in last else 0,
                last_write_time=timestamp_of(min(written_us, now_us)),
                max_write_time_lag=Duration(),
                bytes_written=topic.MultipleWindowsStat(),
                partition_node_id=node,
            )
        )
    return stats


# Times


def timestamp_of(time_us: int) -> Timestamp:
    """A time in microseconds since 1970."""
    return Timestamp(seconds=time_us // MICROSECONDS, nanos=time_us % MICROSECONDS * 1000)


def microseconds_of(time_: Timestamp | Duration) -> int:
    """A time or a duration in microseconds; none is 0."""
    found = time_.seconds * MICROSECONDS + time_.nanos // 1000
    if not 0 <= found <= TIME_US_MAX:
        raise YdbRefusal(Status.BAD_REQUEST, f"a time of {time_.seconds} seconds is out of range")
    return int(found)


def seconds_of(duration: Duration) -> int:
    """A duration in whole seconds, rounded up."""
    return -(-microseconds_of(duration) // MICROSECONDS)

"""DescribeConsumer and CommitOffset.

A commit moves the consumer forward or back. If it names the session that reads the partition, that session goes on;
any other that reads it finds the group moved, and ends so that its client continues at the new offset.
"""

from __future__ import annotations

from contextlib import nullcontext

from google.protobuf.timestamp_pb2 import Timestamp

from headrace.broker import Broker
from headrace.core.errors import OffsetOutOfRange, PartitionNotFound
from headrace.edge.access import Principal
from headrace.protocols.ydb.call import OpenSession, YdbCall
from headrace.protocols.ydb.names import topic_of
from headrace.protocols.ydb.services.directories import entry
from headrace.protocols.ydb.services.discovery import node_of, nodes_of_partitions
from headrace.protocols.ydb.services.topics import (
    GENERATION,
    consumer_of,
    partition_stats,
    unknown_consumer,
)
from headrace.protocols.ydb.stubs import scheme, topic


async def describe_consumer(call: YdbCall, request: topic.DescribeConsumerRequest) -> topic.DescribeConsumerResult:
    """A consumer, and how far it is in each partition."""
    broker, name = call.parts.bridge.broker, topic_of(request.path, call.database)
    call.principal.require("describe_group", name, request.consumer)
    return await call.parts.bridge.call(_described, broker, name, request)


def _described(broker: Broker, name: str, request: topic.DescribeConsumerRequest) -> topic.DescribeConsumerResult:
    found = broker.describe_topic(name)
    if request.consumer not in found.groups:
        raise unknown_consumer(name, request.consumer)
    group, node = broker.describe_group(name, request.consumer), node_of(broker.servers.id)
    own = entry(found.name, scheme.Entry.Type.TOPIC)
    own.name = f"{own.name}/{request.consumer}"
    result = topic.DescribeConsumerResult(self=own, consumer=consumer_of(found, request.consumer, group.important))
    stats = partition_stats(broker, found, node) if request.include_stats else None
    nodes = nodes_of_partitions(broker, found.partitions) if request.include_location else []
    for partition in range(found.partitions):
        info = result.partitions.add(partition_id=partition, active=True)
        if request.include_location:
            info.partition_location.CopyFrom(topic.PartitionLocation(node_id=nodes[partition], generation=GENERATION))
        progress = group.progress.get(partition)
        if stats is None or progress is None:
            continue
        info.partition_stats.CopyFrom(stats[partition])
        own_stats = info.partition_consumer_stats
        own_stats.committed_offset = progress.committed or 0
        own_stats.last_read_offset = progress.position
        own_stats.read_session_id = own_stats.reader_name = progress.consumer or ""
        own_stats.connection_node_id = node if progress.consumer else 0
        for name_ in ("partition_read_session_create_time", "last_read_time"):
            getattr(own_stats, name_).CopyFrom(Timestamp())
        for name_ in ("max_read_time_lag", "max_write_time_lag", "max_committed_time_lag"):
            getattr(own_stats, name_).SetInParent()
        own_stats.bytes_read.SetInParent()
    return result


async def commit_offset(call: YdbCall, request: topic.CommitOffsetRequest) -> topic.CommitOffsetResult:
    """Move a consumer to an offset of a partition, forward or back."""
    name = topic_of(request.path, call.database)
    session = call.parts.sessions.get(request.read_session_id)
    broker = call.parts.bridge.broker
    await call.parts.bridge.call(_commit, broker, call.principal, request, name, session)
    return topic.CommitOffsetResult()


def _commit(
    broker: Broker, principal: Principal, request: topic.CommitOffsetRequest, name: str, session: OpenSession | None
) -> None:
    group, partition, offset = request.consumer, request.partition_id, request.offset
    # Asked before anything is told of the topic.
    principal.require("commit", name, group)
    offsets = broker.offsets(name)
    if group not in broker.list_groups(name):
        raise unknown_consumer(name, group)
    if partition not in offsets:
        raise PartitionNotFound(name, partition, len(offsets))
    start, end = offsets[partition]
    if not 0 <= offset <= end:
        raise OffsetOutOfRange(name, partition, offset, start, end)
    with principal.recording():
        if offset < broker.committed(name, group).get(partition, 0):
            principal.require("commit_back", name, group)
        with session.moving(name, partition, offset) if session is not None else nullcontext():
            broker.seek(name, group, {partition: offset})

"""Dispatches wire operations to methods of the broker. The right each one needs is in `edge.operations`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from headrace.broker import Broker
from headrace.core.checks import check_seconds
from headrace.core.descriptions import Staged
from headrace.core.errors import InvalidInput, QuotaExceeded
from headrace.core.limits import FETCH_WAIT_SECONDS_MAX
from headrace.core.names import composed
from headrace.core.publish.plan import CommitKey
from headrace.core.settings import TopicSettings
from headrace.edge.access import LOOK_SECONDS, Lease, Principal
from headrace.edge.operations import registration
from headrace.wire import operations as wire

Does = Callable[[Broker, Any], Any]

TABLE: Final[dict[type[wire.Operation], Does]] = {
    wire.CreateTopic: lambda broker, op: broker.create_topic(op.topic, op.partitions, **_settings(op)),
    wire.AlterTopic: lambda broker, op: broker.alter_topic(op.topic, op.partitions, **_settings(op)),
    wire.DeleteTopic: lambda broker, op: broker.delete_topic(op.topic),
    wire.DescribeTopic: lambda broker, op: broker.describe_topic(op.topic),
    wire.Offsets: lambda broker, op: broker.offsets(op.topic),
    wire.OffsetAt: lambda broker, op: broker.offset_at(op.topic, op.partition, op.time_us),
    wire.LastSeqno: lambda broker, op: broker.last_seqno(op.topic, op.producer_id, op.message_group_id),
    wire.OpenProducer: lambda broker, op: broker.open_producer(op.topic, op.producer_id, op.message_group_id, op.epoch),
    wire.LastCommit: lambda broker, op: broker.last_commit(op.topic, op.writer),
    wire.RegisterGroup: lambda broker, op: broker.register_group(
        op.topic, op.group, op.consumers, op.important, op.read_from
    ),
    wire.ListSources: lambda broker, op: broker.list_sources(op.topic, op.producer_id, op.max_sources),
    wire.ResetSource: lambda broker, op: broker.reset_source(op.topic, op.producer_id, op.message_group_id),
    wire.DescribeGroup: lambda broker, op: broker.describe_group(op.topic, op.group),
    wire.ListGroups: lambda broker, op: broker.list_groups(op.topic),
    wire.DeleteGroup: lambda broker, op: broker.delete_group(op.topic, op.group),
    wire.JoinGroup: lambda broker, op: broker.join_group(op.topic, op.group, op.member, op.session_timeout_seconds),
    wire.Heartbeat: lambda broker, op: broker.heartbeat(op.topic, op.group, op.member),
    wire.LeaveGroup: lambda broker, op: broker.leave_group(op.topic, op.group, op.member),
    wire.CommitOffsets: lambda broker, op: broker.commit_offsets(
        op.topic, op.group, op.offsets, op.member, op.generation
    ),
    wire.Committed: lambda broker, op: broker.committed(op.topic, op.group),
    wire.Seek: lambda broker, op: broker.seek(op.topic, op.group, op.offsets),
    wire.PublishStaged: lambda broker, op: _publish_staged(broker, op),
    wire.ListServers: lambda broker, _: broker.list_servers(),
    wire.DropStages: lambda broker, op: broker.drop_stages(op.topic, op.stages),
}


def perform(operation: wire.Operation, broker: Broker, principal: Principal) -> Any:
    """Run an operation, if the caller has the right."""
    name, topic, group, producer = _names(operation)
    principal.require(name, topic, group, producer)
    if isinstance(operation, wire.ListTopics):
        return [topic for topic in broker.list_topics() if principal.caller.may_see(topic)]
    if isinstance(operation, wire.Whoami):
        return principal.identity
    if isinstance(operation, wire.AwaitOffsets):
        return _await_offsets(broker, operation, principal.lease(name, topic))
    try:
        answer = TABLE[type(operation)](broker, operation)
    except QuotaExceeded as error:
        principal.tell_limited(error.setting)
        raise
    principal.record_changes()
    return answer


def _settings(operation: wire.CreateTopic | wire.AlterTopic) -> dict[str, Any]:
    """Topic settings that are arguments of the broker and no others."""
    for name in operation.settings:
        if name not in TopicSettings.__struct_fields__:
            rule = f"known settings are {', '.join(TopicSettings.__struct_fields__)}"
            raise InvalidInput("setting", repr(name)[:100], rule)
    return operation.settings


def _names(operation: wire.Operation) -> tuple[str, str, str | None, str | None]:
    """The operation in the table of rights, with its topic, group and producer id, if it has them."""
    name = str(operation.__struct_config__.tag)
    if isinstance(operation, wire.RegisterGroup):
        name = registration(operation.consumers, operation.important)
    writer = getattr(operation, "writer", None)
    producer = getattr(operation, "producer_id", None) or (writer and composed(writer))
    return name, operation.topic, getattr(operation, "group", None), producer


def _await_offsets(broker: Broker, operation: wire.AwaitOffsets, lease: Lease) -> dict[int, tuple[int, int]]:
    """Wait in short steps, so that a caller who loses the right gets an error and no data."""
    wait_seconds = check_seconds("wait_seconds", operation.wait_seconds, FETCH_WAIT_SECONDS_MAX)
    deadline = time.monotonic() + wait_seconds
    while True:
        left = max(0.0, deadline - time.monotonic())
        found = broker.await_offsets(operation.topic, operation.known, min(left, LOOK_SECONDS))
        lease.check()
        has_news = any(operation.known.get(partition) != end for partition, (_, end) in found.items())
        if has_news or left <= LOOK_SECONDS:
            return found


def _publish_staged(broker: Broker, operation: wire.PublishStaged) -> tuple[int, int]:
    key = None if operation.writer is None else CommitKey(operation.writer, operation.number)
    stages = [Staged(stage, rows) for stage, rows in operation.stages]
    receipts = broker.publish_staged(operation.topic, stages, key)
    return receipts.written, len(receipts) - receipts.written

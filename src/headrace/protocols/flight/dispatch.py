"""Operations of the wire, done by the broker: which right each needs, and which method does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace.broker import Broker
from headrace.core.descriptions import Staged
from headrace.core.publish.plan import CommitKey
from headrace.core.rights import Caller, Right
from headrace.wire import operations as wire

Does = Callable[[Broker, Any], Any]

# Every operation is here with the right it needs on its topic; one that is not is denied.
TABLE: Final[dict[type[wire.Operation], tuple[Right, Does]]] = {
    wire.CreateTopic: (Right.MANAGE, lambda broker, op: broker.create_topic(op.topic, op.partitions, **op.settings)),
    wire.AlterTopic: (Right.MANAGE, lambda broker, op: broker.alter_topic(op.topic, op.partitions, **op.settings)),
    wire.DeleteTopic: (Right.MANAGE, lambda broker, op: broker.delete_topic(op.topic)),
    wire.DescribeTopic: (Right.READ, lambda broker, op: broker.describe_topic(op.topic)),
    wire.Offsets: (Right.READ, lambda broker, op: broker.offsets(op.topic)),
    wire.AwaitOffsets: (Right.READ, lambda broker, op: broker.await_offsets(op.topic, op.known, op.wait_seconds)),
    wire.OffsetAt: (Right.READ, lambda broker, op: broker.offset_at(op.topic, op.partition, op.time_us)),
    wire.LastSeqno: (
        Right.PUBLISH,
        lambda broker, op: broker.last_seqno(op.topic, op.producer_id, op.message_group_id),
    ),
    wire.ListSources: (
        Right.PUBLISH,
        lambda broker, op: broker.list_sources(op.topic, op.producer_id, op.max_sources),
    ),
    wire.ResetSource: (
        Right.MANAGE,
        lambda broker, op: broker.reset_source(op.topic, op.producer_id, op.message_group_id),
    ),
    wire.OpenProducer: (
        Right.PUBLISH,
        lambda broker, op: broker.open_producer(op.topic, op.producer_id, op.message_group_id, op.epoch),
    ),
    wire.LastCommit: (Right.PUBLISH, lambda broker, op: broker.last_commit(op.topic, op.writer)),
    wire.RegisterGroup: (
        Right.READ,
        lambda broker, op: broker.register_group(op.topic, op.group, op.consumers, op.important, op.read_from),
    ),
    wire.DescribeGroup: (Right.READ, lambda broker, op: broker.describe_group(op.topic, op.group)),
    wire.ListGroups: (Right.READ, lambda broker, op: broker.list_groups(op.topic)),
    wire.DeleteGroup: (Right.MANAGE, lambda broker, op: broker.delete_group(op.topic, op.group)),
    wire.Join: (
        Right.READ,
        lambda broker, op: broker.join_group(op.topic, op.group, op.member, op.session_timeout_seconds),
    ),
    wire.Heartbeat: (Right.READ, lambda broker, op: broker.heartbeat(op.topic, op.group, op.member)),
    wire.Leave: (Right.READ, lambda broker, op: broker.leave_group(op.topic, op.group, op.member)),
    wire.Commit: (
        Right.READ,
        lambda broker, op: broker.commit(op.topic, op.group, op.offsets, op.member, op.generation),
    ),
    wire.Committed: (Right.READ, lambda broker, op: broker.committed(op.topic, op.group)),
    wire.Seek: (Right.READ, lambda broker, op: broker.seek(op.topic, op.group, op.offsets)),
    wire.PublishStaged: (Right.PUBLISH, lambda broker, op: _publish_staged(broker, op)),
    wire.DropStages: (Right.PUBLISH, lambda broker, op: broker.drop_stages(op.topic, op.stages)),
}


def perform(operation: wire.Operation, broker: Broker, caller: Caller) -> Any:
    """Do an operation, if the caller may."""
    if isinstance(operation, wire.ListTopics):
        return [name for name in broker.list_topics() if caller.may_see(name)]
    right, does = TABLE[type(operation)]
    caller.require(right, operation.topic)
    return does(broker, operation)


def _publish_staged(broker: Broker, operation: wire.PublishStaged) -> tuple[int, int]:
    key = None if operation.writer is None else CommitKey(operation.writer, operation.number)
    stages = [Staged(stage, rows) for stage, rows in operation.stages]
    receipts = broker.publish_staged(operation.topic, stages, key)
    return receipts.written, len(receipts) - receipts.written

"""Performs the operations of `wire.operations`: checks the right, calls the broker, records changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import msgspec

from headrace.broker import Broker
from headrace.broker.access import described
from headrace.core.checks import check_seconds, check_whole
from headrace.core.errors import CommitConflict, InvalidInput, QuotaExceeded, StageNotFound
from headrace.core.health.findings import Health, visible
from headrace.core.limits import AUDIT_KEPT, FETCH_WAIT_SECONDS_MAX
from headrace.core.names import composed
from headrace.core.publish.state import CommitKey
from headrace.core.reports.clients import ClientDescription, visible_clients
from headrace.core.reports.descriptions import (
    Identity,
    Membership,
    NewToken,
    ProducerOpening,
    Staged,
    TokenDescription,
    TopicDescription,
    TransactionOutcome,
)
from headrace.core.reports.pipelines import PipelineDescription
from headrace.core.reports.process import ProcessReport
from headrace.core.rights import Right
from headrace.core.topics.settings import TopicSettings
from headrace.edge import audit
from headrace.edge.access import LOOK_SECONDS, Principal
from headrace.edge.monitoring import process_report
from headrace.wire import operations as wire

Performer = Callable[[Any, Broker, Principal], Any]


def perform(operation: wire.Operation[Any], broker: Broker, principal: Principal) -> Any:
    """Perform an operation, if the caller has the right; changes are recorded in the audit log."""
    principal.require(operation.needed, operation.topic, getattr(operation, "group", None), _producer(operation))
    try:
        performer: Performer = _PERFORMERS.get(type(operation), _call_method)
        answer = performer(operation, broker, principal)
    except QuotaExceeded as error:
        principal.count_refusal(error.setting)
        raise
    principal.record_changes()
    return answer


def _producer(operation: wire.Operation[Any]) -> str | None:
    """The producer id, or the writer of commit keys, whose right is needed."""
    writer = getattr(operation, "writer", None)
    return getattr(operation, "producer_id", None) or (writer and composed(writer))


def _call_method(operation: wire.Operation[Any], broker: Broker, _: Principal) -> Any:
    """Most operations are one method of the broker: their fields are its parameters."""
    method = getattr(broker, operation.method or wire.name_of(operation))
    return method(*msgspec.structs.astuple(operation)[0 if operation.on_topic else 1 :])


def _list_topics(_: wire.ListTopics, broker: Broker, principal: Principal) -> list[str]:
    return [topic for topic in broker.list_topics() if principal.caller.may_see(topic)]


def _list_pipelines(_: wire.ListPipelines, broker: Broker, principal: Principal) -> list[PipelineDescription]:
    return [pipeline for pipeline in broker.list_pipelines() if principal.caller.may_see(pipeline.topic)]


def _describe_health(_: wire.DescribeHealth, broker: Broker, principal: Principal) -> Health:
    """What the caller may see of the verdict: findings on the store need the right to read all topics."""
    health, caller = broker.describe_health(), principal.caller
    covers_store = caller.may(Right.READ, "*")
    shown = visible(health.findings, lambda topic: caller.may(Right.READ, topic), covers_store, caller.name)
    return Health.of(health.server, health.judged_us, shown, covers_store).limited()


def _describe_process(_: wire.DescribeProcess, broker: Broker, __: Principal) -> ProcessReport:
    return process_report.report(broker.servers.id)


def _whoami(_: wire.Whoami, broker: Broker, principal: Principal) -> Identity:
    return principal.identity


def _list_tokens(_: wire.ListTokens, broker: Broker, principal: Principal) -> list[TokenDescription]:
    return [described(each) for each in broker.access.list()]


def _create_token(operation: wire.CreateToken, broker: Broker, principal: Principal) -> NewToken:
    record, text = broker.access.create(*msgspec.structs.astuple(operation)[1:])
    principal.name_change(token=record.id, name=record.name)
    return NewToken(described(record), text, [])


def _rotate_token(operation: wire.RotateToken, broker: Broker, principal: Principal) -> NewToken:
    record, text, old = broker.access.rotate(operation.name, operation.keep_seconds, operation.life_seconds)
    replaced = [each.id for each in old]
    principal.name_change(token=record.id, name=record.name, replaced=replaced)
    return NewToken(described(record), text, replaced)


def _revoke_token(operation: wire.RevokeToken, broker: Broker, principal: Principal) -> bool:
    principal.name_change(token=operation.token_id)
    return broker.access.revoke(operation.token_id)


def _create_topic(operation: wire.CreateTopic, broker: Broker, _: Principal) -> TopicDescription:
    return broker.create_topic(operation.topic, operation.partitions, **_settings(operation))


def _alter_topic(operation: wire.AlterTopic, broker: Broker, _: Principal) -> TopicDescription:
    return broker.alter_topic(operation.topic, operation.partitions, **_settings(operation))


def _settings(operation: wire.CreateTopic | wire.AlterTopic) -> dict[str, Any]:
    """Topic settings that are arguments of the broker and no others."""
    for name in operation.settings:
        if name not in TopicSettings.__struct_fields__:
            rule = f"known settings are {', '.join(TopicSettings.__struct_fields__)}"
            raise InvalidInput("setting", repr(name)[:100], rule)
    return operation.settings


def _list_audit(operation: wire.ListAudit, _: Broker, __: Principal) -> list[dict[str, Any]]:
    return audit.recent(check_whole("max_entries", operation.max_entries, 1, AUDIT_KEPT))


def _await_offsets(operation: wire.AwaitOffsets, broker: Broker, principal: Principal) -> dict[int, tuple[int, int]]:
    """Wait in short steps, so that a caller who loses the right gets an error and no data."""
    lease = principal.lease(operation.needed, operation.topic)
    wait_seconds = check_seconds("wait_seconds", operation.wait_seconds, FETCH_WAIT_SECONDS_MAX)
    deadline = time.monotonic() + wait_seconds
    while True:
        left = max(0.0, deadline - time.monotonic())
        found = broker.await_offsets(operation.topic, operation.known, min(left, LOOK_SECONDS))
        lease.check()
        has_news = any(operation.known.get(partition) != end for partition, (_, end) in found.items())
        if has_news or left <= LOOK_SECONDS:
            return found


def _drop_stages(operation: wire.DropStages, broker: Broker, principal: Principal) -> int:
    return broker.drop_stages(operation.topic, [principal.stage_name(stage) for stage in operation.stages])


def _publish_staged(operation: wire.PublishStaged, broker: Broker, principal: Principal) -> tuple[int, int]:
    key = None if operation.writer is None else CommitKey(operation.writer, operation.number, operation.fingerprint)
    with _own_stages(principal, [stage for stage, _ in operation.stages]):
        return broker.publish_staged(operation.topic, _staged(principal, operation.stages), key)


def _commit_transaction(operation: wire.CommitTransaction, broker: Broker, principal: Principal) -> TransactionOutcome:
    """Each caller has writers of its own, as it has stages: no other can use up their numbers."""
    for topic in operation.stages:
        principal.require("publish_staged", topic, None, _producer(operation))
    for asked in operation.offsets:
        principal.require("commit", asked.topic, asked.group, None)
    writer = operation.writer
    key = writer and CommitKey(principal.stage_name(writer), operation.number, operation.fingerprint)
    stages = {topic: _staged(principal, named) for topic, named in operation.stages.items()}
    with _own_stages(principal, [stage for named in operation.stages.values() for stage, _ in named]):
        try:
            return broker.commit_transaction(stages, operation.offsets, key or None)
        except CommitConflict as error:
            raise replace(error, writer=writer or error.writer) from None


def _staged(principal: Principal, named: Sequence[tuple[str, int]]) -> list[Staged]:
    return [Staged(principal.stage_name(stage), rows) for stage, rows in named]


@contextmanager
def _own_stages(principal: Principal, named: Sequence[str]) -> Iterator[None]:
    """Errors name stages as the caller does."""
    try:
        yield
    except StageNotFound as error:
        given = {principal.stage_name(stage): stage for stage in named}
        raise StageNotFound(error.topic, given[error.stage]) from None


def _open_producer(operation: wire.OpenProducer, broker: Broker, principal: Principal) -> ProducerOpening:
    opening: ProducerOpening = _call_method(operation, broker, principal)
    principal.publishes(operation.topic, operation.producer_id)
    return opening


def _join_group(operation: wire.JoinGroup, broker: Broker, principal: Principal) -> Membership:
    membership: Membership = _call_method(operation, broker, principal)
    principal.joined(operation.topic, operation.group, operation.member)
    return membership


def _heartbeat(operation: wire.Heartbeat, broker: Broker, principal: Principal) -> Membership:
    named = operation.topic, operation.group, operation.member
    membership = broker.heartbeat(*named, operation.generation, operation.partitions)
    principal.joined(*named, operation.idle_seconds)
    return membership


def _leave_group(operation: wire.LeaveGroup, broker: Broker, principal: Principal) -> None:
    principal.left(operation.group, operation.member, operation.topic)
    _call_method(operation, broker, principal)


def _list_clients(_: wire.ListClients, broker: Broker, principal: Principal) -> list[ClientDescription]:
    """The clients of this server that a caller may know of."""
    return visible_clients(principal.limits.clients.list(broker.servers.id), principal.caller)


def _describe_topics(operation: wire.DescribeTopics, broker: Broker, principal: Principal) -> list[TopicDescription]:
    return broker.describe_topics([each for each in operation.topics if principal.may("describe_topic", each)])


_PERFORMERS: Final[dict[type[wire.Operation[Any]], Performer]] = {
    wire.ListTopics: _list_topics,
    wire.ListPipelines: _list_pipelines,
    wire.DescribeHealth: _describe_health,
    wire.DescribeProcess: _describe_process,
    wire.Whoami: _whoami,
    wire.ListTokens: _list_tokens,
    wire.CreateToken: _create_token,
    wire.RotateToken: _rotate_token,
    wire.RevokeToken: _revoke_token,
    wire.ListAudit: _list_audit,
    wire.CreateTopic: _create_topic,
    wire.AlterTopic: _alter_topic,
    wire.AwaitOffsets: _await_offsets,
    wire.PublishStaged: _publish_staged,
    wire.CommitTransaction: _commit_transaction,
    wire.DropStages: _drop_stages,
    wire.OpenProducer: _open_producer,
    wire.JoinGroup: _join_group,
    wire.Heartbeat: _heartbeat,
    wire.LeaveGroup: _leave_group,
    wire.ListClients: _list_clients,
    wire.DescribeTopics: _describe_topics,
}

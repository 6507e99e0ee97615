"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: membership of consumer groups, as the coordinator decides.

A consumer needs the right to read every topic that it subscribes to, in a grant that covers its group. A member of any
other kind of group, such as a worker of Kafka Connect, needs that right on all topics. Groups that have native members,
or a fixed size, cannot be joined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.core.errors import GroupNotFound, GroupSizeConflict, HeadraceError, InvalidInput, TopicNotFound
from headrace.core.names import check_group_name
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.coordinator.group import GroupError, Join, JoinAnswer, SyncAnswer
from headrace.protocols.kafka.errors import code_of
from headrace.protocols.kafka.messages.reader import BadRequest, FieldReader

_MILLISECONDS: Final = 1000
# From this version on a new member is told its id before it joins.
_ID_FIRST_VERSION: Final = 4
_CONSUMER: Final = "consumer"
# What a member may tell the others, over all protocols that it supports.
METADATA_BYTES_MAX: Final = 1 << 20


def code_named(error: str) -> ErrorCode:
    """An error of the coordinator as Kafka's code."""
    return ErrorCode[error]


async def join_group(call: Call, request: Any) -> dict[str, Any]:
    """Join; answered once all members have joined, or the time for it is up."""
    refused: dict[str, Any] = {"protocol_name": "", "leader": "", "member_id": request.member_id}
    try:
        check_group_name(request.group_id)
    except InvalidInput:
        return refused | {"error_code": ErrorCode.invalid_group_id}
    if not call.parts.nodes.is_coordinator(request.group_id):
        return refused | {"error_code": ErrorCode.not_coordinator}
    session_seconds = request.session_timeout / _MILLISECONDS
    protocols = {each.name: each.metadata for each in request.protocols}
    join = Join(
        request.member_id,
        getattr(request, "group_instance_id", None),
        call.client_id,
        call.host,
        session_seconds,
        max(0, getattr(request, "rebalance_timeout", request.session_timeout)) / _MILLISECONDS,
        request.protocol_type,
        protocols,
    )
    try:
        if sum(map(len, protocols.values())) > METADATA_BYTES_MAX:
            raise InvalidInput("metadata", "too many bytes", f"at most {METADATA_BYTES_MAX} of a member")
        call.require_group(request.group_id)
        topics = subscribed(protocols) if request.protocol_type == _CONSUMER else ["*"]
        for topic in topics:
            call.principal.require("join", topic, request.group_id)
        broker = call.parts.bridge.broker
        await call.parts.bridge.call(check_native, broker, topics, request.group_id)
        future = call.parts.coordinator.join(request.group_id, join, call.version >= _ID_FIRST_VERSION)
        if request.protocol_type == _CONSUMER:
            broker.outside_members.hold(request.group_id, topics, "Kafka")
    except GroupError as error:
        return refused | {"error_code": code_named(error.error), "member_id": error.member_id}
    except HeadraceError as error:
        return refused | {"error_code": code_of(error)}
    except BadRequest:
        return refused | {"error_code": ErrorCode.inconsistent_group_protocol}
    answer = await _outcome(call, future)
    if not isinstance(answer, JoinAnswer):
        return refused | {"error_code": ErrorCode.rebalance_in_progress}
    return {
        "error_code": code_named(answer.error),
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type or None,
        "protocol_name": answer.protocol,
        "leader": answer.leader,
        "member_id": answer.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in answer.members
        ],
    }


def subscribed(protocols: Mapping[str, bytes]) -> list[str]:
    """The topics that a consumer names in what it tells the others."""
    topics: dict[str, None] = {}
    for metadata in protocols.values():
        reader = FieldReader(memoryview(metadata))
        reader.number("int16")
        count = reader.number("int32")
        if not 0 <= count <= reader.left:
            raise BadRequest(f"a subscription says it has {count} topics")
        for _ in range(count):
            topics[reader.text(False) or ""] = None
    return list(topics)


def check_native(broker: Broker, topics: list[str], group: str) -> None:
    """Refuse a group whose members are native ones, in any of the topics."""
    for topic in topics:
        try:
            described = broker.describe_group(topic, group) if topic != "*" else None
        except (GroupNotFound, TopicNotFound):
            continue
        if described is not None and (described.members or described.consumers is not None):
            raise GroupSizeConflict(group, f"it has native members in topic {topic!r}")


async def _outcome(call: Call, future: asyncio.Future[Any]) -> Any:
    """What the coordinator answers, or none if that is no use any more."""
    return await call.unless_gone(future)


async def sync_group(call: Call, request: Any) -> dict[str, Any]:
    """Get the assignment; answered once the leader has brought it."""
    if not call.parts.nodes.is_coordinator(request.group_id):
        return {"error_code": ErrorCode.not_coordinator}
    given = {each.member_id: each.assignment for each in request.assignments}
    instance_id = getattr(request, "group_instance_id", None)
    coordinator = call.parts.coordinator
    try:
        call.require_group(request.group_id)
        future = coordinator.sync(request.group_id, request.member_id, instance_id, request.generation_id, given)
    except GroupError as error:
        return {"error_code": code_named(error.error)}
    except HeadraceError as error:
        return {"error_code": code_of(error)}
    answer = await _outcome(call, future)
    if not isinstance(answer, SyncAnswer):
        return {"error_code": ErrorCode.rebalance_in_progress}
    return {
        "error_code": code_named(answer.error),
        "protocol_type": answer.protocol_type or None,
        "protocol_name": answer.protocol or None,
        "assignment": answer.assignment,
    }


async def heartbeat(call: Call, request: Any) -> dict[str, Any]:
    """Stay a member."""
    if not call.parts.nodes.is_coordinator(request.group_id):
        return {"error_code": ErrorCode.not_coordinator}
    instance_id = getattr(request, "group_instance_id", None)
    try:
        call.require_group(request.group_id)
        call.parts.coordinator.heartbeat(request.group_id, request.member_id, instance_id, request.generation_id)
    except GroupError as error:
        return {"error_code": code_named(error.error)}
    except HeadraceError as error:
        return {"error_code": code_of(error)}
    return {"error_code": ErrorCode.none}


async def leave_group(call: Call, request: Any) -> dict[str, Any]:
    """Leave; since version 3 several members at once."""
    if not call.parts.nodes.is_coordinator(request.group_id):
        return {"error_code": ErrorCode.not_coordinator}
    try:
        call.require_group(request.group_id)
    except HeadraceError as error:
        return {"error_code": code_of(error)}
    if not hasattr(request, "members"):
        return {"error_code": _left(call, request.group_id, request.member_id, None)}
    answers = [
        {
            "member_id": each.member_id,
            "group_instance_id": each.group_instance_id,
            "error_code": _left(call, request.group_id, each.member_id, each.group_instance_id),
        }
        for each in request.members
    ]
    return {"error_code": ErrorCode.none, "members": answers}


def _left(call: Call, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
    try:
        call.parts.coordinator.leave(group_id, member_id, instance_id)
    except GroupError as error:
        return code_named(error.error)
    return ErrorCode.none

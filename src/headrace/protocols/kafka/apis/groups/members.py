"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: membership of consumer groups, as the coordinator decides.

A consumer needs the right to read every topic that it subscribes to, in a grant that covers its group, and those of
the other members (`edge.groups`). A member of any other kind of group, such as a worker of Kafka Connect, needs that
right on all topics. Groups that have native members, or a fixed size, cannot be joined.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.core.errors import HeadraceError, InvalidInput
from headrace.core.names import check_group_name, composed, topic_key
from headrace.edge.access import Principal
from headrace.edge.groups import ALL_TOPICS, may_read_all, require_all
from headrace.protocols.kafka.apis.call import ANSWER_ELEMENT_BYTES, LOOP_ELEMENTS_MAX, Call
from headrace.protocols.kafka.coordinator.coordinator import KIND, Group
from headrace.protocols.kafka.coordinator.requests import (
    REBALANCE_SECONDS_MAX,
    GroupError,
    Join,
    JoinAnswer,
    SyncAnswer,
)
from headrace.protocols.kafka.errors import code_of
from headrace.protocols.kafka.messages.reader import BadRequest, FieldReader

_MILLISECONDS: Final = 1000
# From this version on a new member is told its id before it joins.
_ID_FIRST_VERSION: Final = 4
_CONSUMER: Final = "consumer"
# What a member may tell the others, over all protocols that it supports, and the topics among it.
METADATA_BYTES_MAX: Final = 1 << 20
TOPICS_MAX: Final = 10_000
# How many of them operators are shown of a client.
TOPICS_NAMED_MAX: Final = 20


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
    protocols = {each.name: each.metadata for each in request.protocols}
    try:
        if sum(map(len, protocols.values())) > METADATA_BYTES_MAX:
            raise InvalidInput("metadata", "too many bytes", f"at most {METADATA_BYTES_MAX} of a member")
        call.require_group(request.group_id)
        topics = await call.parts.bridge.call(_readable, call.principal, request, protocols)
        rebalance_seconds = getattr(request, "rebalance_timeout", request.session_timeout) / _MILLISECONDS
        join = Join(
            request.member_id,
            getattr(request, "group_instance_id", None),
            call.client_id,
            call.host,
            request.session_timeout / _MILLISECONDS,
            min(max(0.0, rebalance_seconds), REBALANCE_SECONDS_MAX),
            request.protocol_type,
            protocols,
            call.principal.caller,
            topics,
        )
        needs_id = call.version >= _ID_FIRST_VERSION
        async with claimed(call, request.group_id, topics):
            future = call.parts.coordinator.join(call.principal, request.group_id, join, needs_id)
    except GroupError as error:
        return refused | {"error_code": code_named(error.error), "member_id": error.member_id}
    except HeadraceError as error:
        return refused | {"error_code": code_of(error)}
    except BadRequest:
        return refused | {"error_code": ErrorCode.inconsistent_group_protocol}
    answer = await _outcome(call, future)
    if not isinstance(answer, JoinAnswer):
        return refused | {"error_code": ErrorCode.rebalance_in_progress}
    if answer.error == "none":
        note_member(call, request.group_id, answer.member_id, topics)
    await hold_bytes(call, sum(len(metadata) for _, _, metadata in answer.members), len(answer.members))
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


def seen(call: Call, name: str) -> list[Group]:
    """The groups of a name that have members and that the caller may be told of; those that it is in come first.

    Several are shown as one: its state is that of the first, its members are those of all, so that none hides another.
    """
    groups = [group for group in call.parts.coordinator.named(name) if is_seen(call, group)]
    return sorted(groups, key=lambda group: call.principal.caller not in group.roster.callers)


def is_seen(call: Call, group: Group) -> bool:
    """Whether the caller may be told of a group: who may be in it; one that reads nothing, who is or may read all."""
    caller, roster = call.principal.caller, group.roster
    return caller in roster.callers or may_read_all(caller, group.id, roster.topics or [ALL_TOPICS])


def note_member(call: Call, group: str, member_id: str, topics: Collection[str]) -> None:
    """Have operators see what a client is a member of."""
    for topic in sorted(topics)[:TOPICS_NAMED_MAX]:
        call.principal.joined(topic, group, member_id)


async def hold_bytes(call: Call, size: int, elements: int) -> None:
    """Wait for room for an answer with so many bytes that members brought."""
    await call.hold(elements + size // ANSWER_ELEMENT_BYTES)


def _readable(principal: Principal, request: Any, protocols: Mapping[str, bytes]) -> frozenset[str]:
    """The topics that a member reads, all of which it may."""
    topics = subscribed(protocols) if request.protocol_type == _CONSUMER else {ALL_TOPICS}
    if len(topics) > TOPICS_MAX:
        raise InvalidInput("subscribed topics", str(len(topics)), f"at most {TOPICS_MAX}")
    require_all(principal, "join", request.group_id, topics)
    return frozenset(map(topic_key, topics))


def subscribed(protocols: Mapping[str, bytes]) -> set[str]:
    """The topics that a consumer names in what it tells the others."""
    topics: set[str] = set()
    for metadata in protocols.values():
        reader = FieldReader(memoryview(metadata))
        reader.number("int16")
        count = reader.number("int32")
        if not 0 <= count <= reader.left:
            raise BadRequest(f"a subscription says it has {count} topics")
        for _ in range(count):
            topics.add(reader.text(False) or "")
    return topics


@asynccontextmanager
async def claimed(call: Call, group: str, topics: Collection[str]) -> AsyncIterator[None]:
    """Refuse a group that has native members in any of the topics that it does not read yet, and keep them out.

    The coordinator has to know the member before this ends: until then the claim alone holds the group.
    """
    claims, name, read = call.parts.bridge.broker.claims, composed(group), set(topics) - {ALL_TOPICS}
    with claims.outside.expected(name, read, KIND):
        if new := call.parts.coordinator.unread(group, read):
            await call.parts.bridge.call(claims.claim, name, new, KIND)
        yield


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
        future = coordinator.sync(
            call.principal, request.group_id, request.member_id, instance_id, request.generation_id, given
        )
    except GroupError as error:
        return {"error_code": code_named(error.error)}
    except HeadraceError as error:
        return {"error_code": code_of(error)}
    answer = await _outcome(call, future)
    if not isinstance(answer, SyncAnswer):
        return {"error_code": ErrorCode.rebalance_in_progress}
    await hold_bytes(call, len(answer.assignment), 1)
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
        call.parts.coordinator.heartbeat(
            call.principal, request.group_id, request.member_id, instance_id, request.generation_id
        )
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
    for member_id in [each.member_id for each in getattr(request, "members", [request])]:
        call.principal.left(request.group_id, member_id)
    if not hasattr(request, "members"):
        (left,) = call.parts.coordinator.leave(call.principal, request.group_id, [(request.member_id, None)])
        return {"error_code": code_named(left)}
    await call.hold(len(request.members))
    answers: list[dict[str, Any]] = []
    # A group has hardly more members, which leave in one change.
    for first in range(0, len(request.members), LOOP_ELEMENTS_MAX):
        some = request.members[first : first + LOOP_ELEMENTS_MAX]
        leavers = [(each.member_id, each.group_instance_id) for each in some]
        errors = call.parts.coordinator.leave(call.principal, request.group_id, leavers)
        answers += [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": code_named(left)}
            for (member_id, instance_id), left in zip(leavers, errors, strict=True)
        ]
        await asyncio.sleep(0)
    return {"error_code": ErrorCode.none, "members": answers}

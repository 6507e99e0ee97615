"""Groups as administrators see them: ListGroups, DescribeGroups, DeleteGroups.

What is named twice is looked at once, the store is asked once for all names, and many are deleted in pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.core.errors import HeadraceError
from headrace.core.names import composed, topic_key
from headrace.edge.groups import have_common
from headrace.protocols.kafka.apis.call import Call, in_turns
from headrace.protocols.kafka.apis.groups.members import hold_bytes, is_seen, seen
from headrace.protocols.kafka.apis.groups.offsets import pieces, stored_topics
from headrace.protocols.kafka.coordinator.group import ClassicGroup, State
from headrace.protocols.kafka.errors import code_of

_CONSUMER: Final = "consumer"
_CLASSIC: Final = "classic"
_DEAD: Final = "Dead"
# Since this version DescribeGroups has an error for groups that do not exist.
_NOT_FOUND: Final = 6

# What ListGroups tells of a group: protocol type, state, and type of group.
_Listed = tuple[str, str, str]


async def list_groups(call: Call, request: Any) -> dict[str, Any]:
    """The groups that have members here, and those that have offsets in any topic that the caller may read.

    Each server lists those that it coordinates: a client asks all of them, and is told of a group once.
    """
    states: dict[str, _Listed] = {}
    async for group in in_turns(call.parts.coordinator.groups()):
        name = composed(group.id)
        if is_seen(call, group) and (name not in states or call.principal.caller in group.roster.callers):
            if isinstance(group, ClassicGroup):
                states[name] = group.protocol_type, group.state.value, _CLASSIC
            else:
                states[name] = _CONSUMER, group.state, _CONSUMER
    stored = await call.parts.bridge.call(stored_topics, call, None)
    await call.hold(len(states) + len(stored))
    return await call.parts.bridge.call(_list, call, request, stored, states)


def _list(call: Call, request: Any, stored: Iterable[str], states: Mapping[str, _Listed]) -> dict[str, Any]:
    every = dict.fromkeys(filter(call.parts.nodes.is_coordinator, stored), (_CONSUMER, State.EMPTY.value, _CLASSIC))
    every |= states
    wanted = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    listed = [
        {"group_id": name, "protocol_type": kind, "group_state": state, "group_type": group_type}
        for name, (kind, state, group_type) in sorted(every.items())
        if (not wanted or state.lower() in wanted) and (not types or group_type in types)
    ]
    return {"error_code": ErrorCode.none, "groups": listed}


async def describe_groups(call: Call, request: Any) -> dict[str, Any]:
    """Members and assignments of groups, each once."""
    names = list(dict.fromkeys(request.groups))
    await call.hold(len(names), names)
    absent = [name for name in names if not _classic(call, name)]
    stored = await call.parts.bridge.call(stored_topics, call, absent) if absent else {}
    return {"groups": [await _described(call, name, stored) async for name in in_turns(names)]}


def _classic(call: Call, name: str) -> list[ClassicGroup]:
    groups = [group for group in seen(call, name) if isinstance(group, ClassicGroup)]
    return [group for group in groups if group.protocol_type == groups[0].protocol_type]


async def _described(call: Call, name: str, stored: Mapping[str, list[str]]) -> dict[str, Any]:
    answer: dict[str, Any] = {"error_code": ErrorCode.none, "group_id": name, "group_state": _DEAD}
    groups = _classic(call, name)
    if not call.parts.nodes.is_coordinator(name):
        return answer | {"error_code": ErrorCode.not_coordinator}
    if groups:
        members = [member for group in groups for member in _members(group)]
        size = sum(len(each["member_metadata"]) + len(each["member_assignment"]) for each in members)
        await hold_bytes(call, size, len(members))
        # Others have their turn between two names.
        await asyncio.sleep(0)
        first = groups[0]
        chosen = first.protocol if first.state == State.STABLE else ""
        told = {"group_state": first.state.value, "protocol_type": first.protocol_type, "protocol_data": chosen}
        return answer | told | {"members": members}
    if composed(name) in stored:
        return answer | {"group_state": State.EMPTY.value, "protocol_type": _CONSUMER}
    if any(isinstance(each, ClassicGroup) for each in call.parts.coordinator.named(name)):
        return answer | {"error_code": ErrorCode.group_authorization_failed}
    if call.version < _NOT_FOUND:
        return answer
    return answer | {"error_code": ErrorCode.group_id_not_found, "error_message": f"group {name!r} does not exist"}


def _members(group: ClassicGroup) -> list[dict[str, Any]]:
    return [
        {
            "member_id": member.id,
            "group_instance_id": member.joined.instance_id,
            "client_id": member.joined.client_id,
            "client_host": f"/{member.joined.host}",
            "member_metadata": member.joined.protocols.get(group.protocol, b""),
            "member_assignment": member.assignment,
        }
        for member in group.members.values()
    ]


async def delete_groups(call: Call, request: Any) -> dict[str, Any]:
    """Delete groups without members, with their offsets in all topics that the caller may read."""
    names = list(dict.fromkeys(request.groups_names))
    await call.hold(len(names), names)
    stored = await call.parts.bridge.call(stored_topics, call, names)
    results = [{"group_id": name, "error_code": await _deleted(call, name, stored)} async for name in in_turns(names)]
    return {"results": results}


async def _deleted(call: Call, name: str, stored: Mapping[str, list[str]]) -> ErrorCode:
    if not call.parts.nodes.is_coordinator(name):
        return ErrorCode.not_coordinator
    topics = stored.get(composed(name), [])
    keys = set(map(topic_key, topics))
    present = call.parts.coordinator.named(name)
    if seen(call, name) or any(have_common(keys, group.roster.topics) for group in present):
        return ErrorCode.non_empty_group
    if not topics:
        return ErrorCode.group_id_not_found
    try:
        # In all of them, before it is deleted in any.
        for piece in pieces(topics):
            if await call.parts.bridge.call(_is_held, call, name, piece):
                return ErrorCode.non_empty_group
        for piece in pieces(topics):
            await call.parts.bridge.call(_delete, call, name, piece)
    except HeadraceError as error:
        return code_of(error)
    return ErrorCode.none


def _is_held(call: Call, name: str, topics: list[str]) -> bool:
    """Whether a group has native members in any of the topics, in all of which the caller may delete it."""
    for topic in topics:
        call.principal.require("delete_group", topic, name)
    call.principal.forget_changes()
    return any(call.parts.bridge.broker.describe_group(topic, name).members for topic in topics)


def _delete(call: Call, name: str, topics: list[str]) -> None:
    for topic in topics:
        with call.principal.recording():
            call.principal.require("delete_group", topic, name)
            call.parts.bridge.broker.delete_group(topic, name)

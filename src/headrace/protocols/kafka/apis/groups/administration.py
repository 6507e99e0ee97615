"""Committed offsets and groups: OffsetCommit, OffsetFetch, OffsetDelete, ListGroups, DescribeGroups, DeleteGroups.

Committed offsets are those of the broker's groups: a Kafka group over several topics is a group of that name in each of
them. Kafka lets a commit move back, which is a seek here. The text that a commit may carry is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.core.errors import GroupNotFound, GroupSizeConflict, HeadraceError, TopicNotFound
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.groups.members import code_named, subscribed
from headrace.protocols.kafka.apis.topic_ids import TopicRef, name_of, ref_of, topic_uuid
from headrace.protocols.kafka.coordinator.consumer_group import ConsumerGroup
from headrace.protocols.kafka.coordinator.group import ClassicGroup, GroupError, State
from headrace.protocols.kafka.errors import code_of

_CONSUMER = "consumer"
_CLASSIC = "classic"
_DEAD = "Dead"
# Since this version OffsetFetch names topics by id.
_BY_ID = 10
# Since this version DescribeGroups has an error for groups that do not exist.
_NOT_FOUND = 6


async def offset_commit(call: Call, request: Any) -> dict[str, Any]:
    """Store the next offsets to read, if the member may."""
    group, instance_id = request.group_id, getattr(request, "group_instance_id", None)
    error = ErrorCode.none
    try:
        generation = request.generation_id_or_member_epoch
        call.parts.coordinator.check_commit(group, request.member_id, instance_id, generation)
    except GroupError as refused:
        error = code_named(refused.error)
    if not call.parts.nodes.is_coordinator(group):
        error = ErrorCode.not_coordinator
    answers = []
    for topic in request.topics:
        offsets = {each.partition_index: each.committed_offset for each in topic.partitions}
        ref = ref_of(topic)
        if error == ErrorCode.none:
            codes = await call.parts.bridge.call(_commit, call, ref, group, offsets)
        else:
            codes = dict.fromkeys(offsets, error)
        partitions = [
            {"partition_index": each.partition_index, "error_code": codes[each.partition_index]}
            for each in topic.partitions
        ]
        answers.append({"name": ref, "topic_id": ref, "partitions": partitions})
    return {"topics": answers}


def _commit(call: Call, ref: TopicRef, group: str, offsets: dict[int, int]) -> dict[int, ErrorCode]:
    """Commit the offsets of a topic, those that are wrong without those that are right."""
    broker = call.parts.bridge.broker
    codes = dict.fromkeys(offsets, ErrorCode.none)
    try:
        topic = name_of(broker, ref)
        call.principal.require("commit", topic, group)
        known = broker.offsets(topic)
    except HeadraceError as error:
        return dict.fromkeys(offsets, code_of(error))
    for partition, offset in offsets.items():
        if partition not in known:
            codes[partition] = ErrorCode.unknown_topic_or_partition
        elif not 0 <= offset <= known[partition][1]:
            codes[partition] = ErrorCode.offset_out_of_range
    good = {partition: offset for partition, offset in offsets.items() if codes[partition] == ErrorCode.none}
    try:
        _store(broker, topic, group, good)
    except HeadraceError as error:
        # Native members own the group: a commit from outside would move it under their feet.
        code = ErrorCode.unknown_member_id if isinstance(error, GroupSizeConflict) else code_of(error)
        codes |= dict.fromkeys(good, code)
    return codes


def _store(broker: Broker, topic: str, group: str, offsets: dict[int, int]) -> None:
    if not offsets:
        return
    try:
        committed = broker.committed(topic, group)
    except GroupNotFound:
        broker.register_group(topic, group)
        committed = {}
    back = {partition: offset for partition, offset in offsets.items() if offset < committed.get(partition, 0)}
    forth = {partition: offset for partition, offset in offsets.items() if partition not in back}
    if forth:
        broker.commit_offsets(topic, group, forth)
    if back:
        broker.seek(topic, group, back)


async def offset_fetch(call: Call, request: Any) -> dict[str, Any]:
    """The committed offsets of a group, of some topics or of all."""
    if hasattr(request, "groups"):
        answers = []
        for group in request.groups:
            topics = await call.parts.bridge.call(_committed, call, group.group_id, group.topics)
            answers.append({"group_id": group.group_id, "topics": topics, "error_code": ErrorCode.none})
        return {"groups": answers}
    topics = await call.parts.bridge.call(_committed, call, request.group_id, request.topics)
    return {"topics": topics, "error_code": ErrorCode.none}


def _committed(call: Call, group: str, topics: Any) -> list[dict[str, Any]]:
    broker = call.parts.bridge.broker
    if topics is not None:
        return [_of_topic(call, broker, group, ref_of(topic), topic.partition_indexes) for topic in topics]
    names = [name for name in _topics_of(call, group) if call.principal.caller.may_see(name)]
    answers = [_of_topic(call, broker, group, name, None) for name in names]
    if call.version >= _BY_ID:
        for answer in answers:
            answer["topic_id"] = topic_uuid(broker.reader(answer["name"]).topic_id)
    return [answer for answer in answers if answer["partitions"]]


def _of_topic(call: Call, broker: Broker, group: str, ref: TopicRef, partitions: Any) -> dict[str, Any]:
    code, committed = ErrorCode.none, {}
    try:
        topic = name_of(broker, ref)
        call.principal.require("committed", topic, group)
        committed = broker.committed(topic, group)
    except (GroupNotFound, TopicNotFound):
        pass
    except HeadraceError as error:
        code = code_of(error)
    answers = [
        {
            "partition_index": partition,
            "committed_offset": committed.get(partition, -1),
            "metadata": "",
            "error_code": code,
        }
        for partition in (committed if partitions is None else partitions)
    ]
    return {"name": ref, "topic_id": ref, "partitions": answers}


async def offset_delete(call: Call, request: Any) -> dict[str, Any]:
    """Forget the committed offsets of a group in some partitions that none of its members reads."""
    group = request.group_id
    if not call.parts.nodes.is_coordinator(group):
        return {"error_code": ErrorCode.not_coordinator}
    known = call.parts.coordinator.find(group) or call.parts.coordinator.find_consumer(group)
    if known is None and not await call.parts.bridge.call(_topics_of, call, group):
        return {"error_code": ErrorCode.group_id_not_found}
    read = set() if known is None else _subscribed(known)
    if read is None:
        # What members of another kind of group read is not known.
        return {"error_code": ErrorCode.non_empty_group}
    answers = []
    for topic in request.topics:
        partitions = [each.partition_index for each in topic.partitions]
        codes = await call.parts.bridge.call(_forget, call, topic.name, group, partitions, topic.name in read)
        named = [{"partition_index": partition, "error_code": codes[partition]} for partition in partitions]
        answers.append({"name": topic.name, "partitions": named})
    return {"error_code": ErrorCode.none, "topics": answers}


def _subscribed(group: ClassicGroup | ConsumerGroup) -> set[str] | None:
    """The topics that the members of a group read; None if only they know."""
    if isinstance(group, ConsumerGroup):
        return group.topics()
    if group.protocol_type != _CONSUMER:
        return None
    return {topic for member in group.members.values() for topic in subscribed(member.joined.protocols)}


def _may_see(call: Call, group: ClassicGroup | ConsumerGroup) -> bool:
    """Whether the caller may be told of a group; if only its members know what they read, who may see all topics."""
    topics = _subscribed(group)
    return call.may_see_group(group.id, ["*"] if topics is None else topics)


def _forget(call: Call, topic: str, group: str, partitions: list[int], is_read: bool) -> dict[int, ErrorCode]:
    broker = call.parts.bridge.broker
    try:
        call.principal.require("delete_group", topic, group)
        if is_read:
            return dict.fromkeys(partitions, ErrorCode.group_subscribed_to_topic)
        count = broker.reader(topic).partitions
        good = [partition for partition in partitions if 0 <= partition < count]
        with suppress(GroupNotFound):
            broker.forget_offsets(topic, group, good)
            call.principal.record_changes()
    except HeadraceError as error:
        code = ErrorCode.group_subscribed_to_topic if isinstance(error, GroupSizeConflict) else code_of(error)
        return dict.fromkeys(partitions, code)
    wrong = ErrorCode.unknown_topic_or_partition
    return {partition: ErrorCode.none if partition in good else wrong for partition in partitions}


def _groups_by_topic(call: Call) -> Iterable[tuple[str, list[str]]]:
    broker = call.parts.bridge.broker
    for topic in broker.list_topics():
        try:
            call.principal.require("list_groups", topic)
            yield topic, broker.list_groups(topic)
        except HeadraceError:
            continue


def _topics_of(call: Call, group: str) -> list[str]:
    return [topic for topic, groups in _groups_by_topic(call) if group in groups]


async def list_groups(call: Call, request: Any) -> dict[str, Any]:
    """The groups that have members here, and those that have offsets in any topic that the caller may read.

    Each server lists those that it coordinates: a client asks all of them, and is told of a group once.
    """
    stored = await call.parts.bridge.call(lambda: {group for _, groups in _groups_by_topic(call) for group in groups})
    coordinator, is_coordinator = call.parts.coordinator, call.parts.nodes.is_coordinator
    states = dict.fromkeys(filter(is_coordinator, stored), (_CONSUMER, State.EMPTY.value, _CLASSIC))
    classic = [group for group in coordinator.groups() if _may_see(call, group)]
    consumers = [group for group in coordinator.consumer_groups() if _may_see(call, group)]
    states |= {group.id: (group.protocol_type, group.state.value, _CLASSIC) for group in classic}
    states |= {group.id: (_CONSUMER, group.state, _CONSUMER) for group in consumers}
    wanted = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    listed = [
        {"group_id": name, "protocol_type": kind, "group_state": state, "group_type": group_type}
        for name, (kind, state, group_type) in sorted(states.items())
        if (not wanted or state.lower() in wanted) and (not types or group_type in types)
    ]
    return {"error_code": ErrorCode.none, "groups": listed}


async def describe_groups(call: Call, request: Any) -> dict[str, Any]:
    """Members and assignments of groups."""
    return {"groups": [await _described(call, name) for name in request.groups]}


async def _described(call: Call, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"error_code": ErrorCode.none, "group_id": name, "group_state": _DEAD}
    group = call.parts.coordinator.find(name)
    if not call.parts.nodes.is_coordinator(name):
        return answer | {"error_code": ErrorCode.not_coordinator}
    if group is None:
        topics = await call.parts.bridge.call(_topics_of, call, name)
        if topics:
            return answer | {"group_state": State.EMPTY.value, "protocol_type": _CONSUMER}
        if call.version < _NOT_FOUND:
            return answer
        return answer | {"error_code": ErrorCode.group_id_not_found, "error_message": f"group {name!r} does not exist"}
    if not _may_see(call, group):
        return answer | {"error_code": ErrorCode.group_authorization_failed}
    return answer | _shown(group)


def _shown(group: ClassicGroup) -> dict[str, Any]:
    members = [
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
    return {
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": members,
    }


async def delete_groups(call: Call, request: Any) -> dict[str, Any]:
    """Delete groups without members, with their offsets in all topics."""
    return {"results": [{"group_id": name, "error_code": await _deleted(call, name)} for name in request.groups_names]}


async def _deleted(call: Call, name: str) -> ErrorCode:
    if not call.parts.nodes.is_coordinator(name):
        return ErrorCode.not_coordinator
    if call.parts.coordinator.find(name) is not None or call.parts.coordinator.find_consumer(name) is not None:
        return ErrorCode.non_empty_group
    try:
        return await call.parts.bridge.call(_delete, call, name)
    except HeadraceError as error:
        return code_of(error)


def _delete(call: Call, name: str) -> ErrorCode:
    broker, topics = call.parts.bridge.broker, _topics_of(call, name)
    if any(broker.describe_group(topic, name).members for topic in topics):
        return ErrorCode.non_empty_group
    for topic in topics:
        call.principal.require("delete_group", topic, name)
    for topic in topics:
        broker.delete_group(topic, name)
    call.principal.record_changes()
    return ErrorCode.none if topics else ErrorCode.group_id_not_found

"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups in which the server assigns (KIP-848).

One request does what JoinGroup, SyncGroup, Heartbeat and LeaveGroup do in the older protocol. Topics are named by id in
assignments, and by name or by a regular expression in subscriptions. A member needs the right to read every topic that
it names, in a grant that covers its group, and those of the other members (`edge.groups`); an expression means those
topics that it may read, and is looked up again when topics have changed. Committed offsets are those of all groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.core.errors import GroupSizeConflict, HeadraceError, InvalidInput
from headrace.core.limits import ID_CHARACTERS_MAX
from headrace.core.names import check_group_name, check_topic_name, topic_key
from headrace.core.rights import Caller
from headrace.edge.groups import may_read_all, require_all
from headrace.protocols.kafka.apis.call import Call, in_turns
from headrace.protocols.kafka.apis.groups.members import claimed, code_named, note_member, seen
from headrace.protocols.kafka.apis.topic_ids import topic_number, topic_uuid
from headrace.protocols.kafka.coordinator.assignment import Owned
from headrace.protocols.kafka.coordinator.consumer_group import (
    JOINING,
    PAUSING,
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerMember,
    MemberSubscription,
)
from headrace.protocols.kafka.coordinator.requests import GroupError
from headrace.protocols.kafka.errors import code_of, message_of

_MILLISECONDS: Final = 1000
_ASSIGNORS: Final = (None, "", "uniform", "range")
ASSIGNOR: Final = "uniform"
TOPICS_MAX: Final = 1_000
PATTERN_CHARACTERS_MAX: Final = 1_000
_CONSUMER_TYPE: Final = 1


async def consumer_group_heartbeat(call: Call, request: Any) -> dict[str, Any]:
    """Join, stay, leave, and learn what to read."""
    try:
        check_group_name(request.group_id)
    except InvalidInput as error:
        return _refused(ErrorCode.invalid_group_id, message_of(error))
    if not call.parts.nodes.is_coordinator(request.group_id):
        return _refused(ErrorCode.not_coordinator)
    try:
        return await _answer(call, request)
    except GroupError as error:
        return _refused(code_named(error.error), f"member {error.member_id!r}: {error.error.replace('_', ' ')}")
    except GroupSizeConflict as error:
        return _refused(ErrorCode.group_id_not_found, message_of(error))
    except HeadraceError as error:
        return _refused(code_of(error), message_of(error))


def _refused(code: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "member_id": None, "assignment": None}


async def _answer(call: Call, request: Any) -> dict[str, Any]:
    coordinator, group_id = call.parts.coordinator, request.group_id
    call.require_group(group_id)
    if request.member_epoch < PAUSING:
        raise InvalidInput("member epoch", str(request.member_epoch), f"it is at least {PAUSING}")
    if request.member_epoch < JOINING:
        call.principal.left(group_id, request.member_id)
        coordinator.consumer_leave(
            call.principal, group_id, request.member_id, request.instance_id, request.member_epoch
        )
        return {"member_id": request.member_id, "member_epoch": request.member_epoch, "assignment": None}
    if request.member_epoch == JOINING and (request.rebalance_timeout < 0 or request.topic_partitions is None):
        raise InvalidInput(
            "member", repr(request.member_id)[:100], "one that joins names a timeout and its partitions, if only none"
        )
    if request.server_assignor not in _ASSIGNORS:
        return _refused(ErrorCode.unsupported_assignor, "assignors are uniform and range")
    for field in (request.member_id, request.instance_id or "", request.rack_id or ""):
        if len(field) > ID_CHARACTERS_MAX:
            raise InvalidInput("member", f"{len(field)} characters", f"ids have at most {ID_CHARACTERS_MAX} characters")
    present = _present(call, group_id, request.member_id)
    subscription = _subscription(request, present)
    try:
        topics, subscription = await _topics(call, group_id, subscription, present)
    except pa.ArrowInvalid as error:
        return _refused(ErrorCode.invalid_regular_expression, f"{subscription.pattern[:100]!r}: {error}")
    heartbeat = ConsumerHeartbeat(
        request.member_id or (str(uuid.uuid4()) if request.member_epoch == JOINING else ""),
        request.member_epoch,
        request.instance_id,
        call.client_id,
        call.host,
        request.rebalance_timeout / _MILLISECONDS,
        topics,
        await _owned(call, request.topic_partitions),
        request.subscribed_topic_names is not None or getattr(request, "subscribed_topic_regex", None) is not None,
        subscription,
        call.principal.caller,
    )
    async with claimed(call, group_id, topics or ()):
        member, is_told = await coordinator.consumer_heartbeat(call.principal, group_id, heartbeat)
    note_member(call, group_id, member.id, topics or ())
    assigned = None
    if is_told:
        places = member.assigned
        await call.hold(len(places))
        assigned = {"topic_partitions": await call.work(len(places), _grouped, places)}
    return {
        "error_code": ErrorCode.none,
        "member_id": member.id,
        "member_epoch": member.epoch,
        "heartbeat_interval": round(call.parts.settings.heartbeat_seconds * _MILLISECONDS),
        "assignment": assigned,
    }


def _present(call: Call, group_id: str, member_id: str) -> ConsumerMember | None:
    """A member as it is known, whoever it is of: the coordinator checks that."""
    groups = [each for each in call.parts.coordinator.named(group_id) if isinstance(each, ConsumerGroup)]
    return next((group.members[member_id] for group in groups if member_id in group.members), None)


def _subscription(request: Any, present: ConsumerMember | None) -> MemberSubscription:
    """What a member asks for; what it leaves out is as before."""
    names, pattern = request.subscribed_topic_names, getattr(request, "subscribed_topic_regex", None)
    if names is None and pattern is None and request.member_epoch == JOINING:
        raise InvalidInput("subscribed topics", "none", "a member that joins says what it reads")
    _check_count(len(names or ()))
    if pattern is not None and len(pattern) > PATTERN_CHARACTERS_MAX:
        rule = f"an expression has at most {PATTERN_CHARACTERS_MAX} characters"
        raise InvalidInput("subscribed topics", f"{len(pattern)} characters", rule)
    before = MemberSubscription() if present is None else present.subscription
    if names is None and pattern is None:
        return before
    return MemberSubscription(
        before.names if names is None else frozenset(names), before.pattern if pattern is None else pattern
    )


async def _topics(
    call: Call, group_id: str, subscription: MemberSubscription, present: ConsumerMember | None
) -> tuple[frozenset[str] | None, MemberSubscription]:
    """The keys of the topics that a member reads; None if nothing has changed since they were looked up."""
    broker, caller = call.parts.bridge.broker, call.principal.caller
    looked_up = broker.topics_version() if subscription.pattern else 0, caller
    if subscription.looked_up == looked_up:
        return None, subscription
    for name in subscription.names:
        check_topic_name(name)
    require_all(call.principal, "join", group_id, subscription.names)
    read = subscription.names
    if subscription.pattern:
        read |= await call.parts.bridge.call(_matching, broker, caller, subscription.pattern, group_id)
    _check_count(len(read))
    topics = frozenset(map(topic_key, read))
    subscription = replace(subscription, looked_up=looked_up)
    if present is not None and topics == present.topics:
        return None, subscription
    return topics, subscription


def _check_count(topics: int) -> None:
    if topics > TOPICS_MAX:
        raise InvalidInput("subscribed topics", str(topics), f"at most {TOPICS_MAX}")


def _matching(broker: Broker, caller: Caller, pattern: str, group: str) -> frozenset[str]:
    """The topics that an expression means: their whole names match, and the caller may read them.

    By RE2, as in Kafka: no expression takes long.
    """
    names = pa.array(broker.known_topics(), pa.string())
    found = names.filter(pc.match_substring_regex(names, f"^(?:{pattern})$")).to_pylist()
    return frozenset(name for name in found if may_read_all(caller, group, [name]))


async def _owned(call: Call, given: Any) -> frozenset[Owned] | None:
    """What a member says that it owns; what is not ours cannot be."""
    if given is None:
        return None
    return await call.work(sum(len(topic.partitions) for topic in given), _places, given)


def _places(given: Any) -> frozenset[Owned]:
    numbered = ((topic_number(topic.topic_id), topic.partitions) for topic in given)
    return frozenset(
        Owned(number, each) for number, partitions in numbered if number is not None for each in partitions
    )


def _grouped(places: Iterable[Owned]) -> list[dict[str, Any]]:
    partitions: dict[int, list[int]] = {}
    for place in sorted(places):
        partitions.setdefault(place.topic_id, []).append(place.partition)
    return [{"topic_id": topic_uuid(number), "partitions": each} for number, each in partitions.items()]


async def consumer_group_describe(call: Call, request: Any) -> dict[str, Any]:
    """Members, subscriptions and assignments of groups, each once."""
    names = dict.fromkeys(request.group_ids)
    await call.hold(len(names), names)
    return {"groups": [await _described(call, name) async for name in in_turns(names)]}


async def _described(call: Call, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"error_code": ErrorCode.none, "group_id": name, "members": []}
    if not call.parts.nodes.is_coordinator(name):
        return answer | {"error_code": ErrorCode.not_coordinator}
    visible = [each for each in seen(call, name) if isinstance(each, ConsumerGroup)]
    if not visible:
        message = f"group {name!r} has no members of this protocol"
        return answer | {"error_code": ErrorCode.group_id_not_found, "error_message": message}
    group, sizes = visible[0], {topic: size for each in visible for topic, size in each.sizes.items()}
    members = [member for each in visible for member in each.members.values()]
    elements = sum(1 + len(each.topics) + len(each.assigned) + len(each.target) for each in members)
    await call.hold(elements)
    broker = call.parts.bridge.broker
    names = {topic_uuid(number): broker.known_topic_name(number) or "" for number, _ in sizes.values()}
    return answer | {
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": ASSIGNOR,
        "members": await call.work(elements, _members, members, sizes, names),
    }


Sizes = Mapping[str, tuple[int, int]]


def _members(members: Iterable[ConsumerMember], sizes: Sizes, names: Mapping[UUID, str]) -> list[dict[str, Any]]:
    return [_member(member, sizes, names) for member in members]


def _member(member: ConsumerMember, sizes: Sizes, names: Mapping[UUID, str]) -> dict[str, Any]:
    def shown(places: Iterable[Owned]) -> dict[str, Any]:
        return {
            "topic_partitions": [{**each, "topic_name": names.get(each["topic_id"], "")} for each in _grouped(places)]
        }

    numbers = {topic: topic_uuid(sizes[topic][0]) for topic in member.topics if topic in sizes}
    return {
        "member_id": member.id,
        "instance_id": member.instance_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": f"/{member.host}",
        "subscribed_topic_names": sorted(names[numbers[each]] if each in numbers else each for each in member.topics),
        "subscribed_topic_regex": member.subscription.pattern,
        "assignment": shown(member.assigned),
        "target_assignment": shown(member.target),
        "member_type": _CONSUMER_TYPE,
    }

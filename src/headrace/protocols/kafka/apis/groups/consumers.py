"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups in which the server assigns (KIP-848).

One request does what JoinGroup, SyncGroup, Heartbeat and LeaveGroup do in the older protocol. Topics are named by id in
assignments, and by name or by a regular expression in subscriptions. A member needs the right to read every topic that
it names, in a grant that covers its group; an expression means those topics that it may read, and is looked at again in
every heartbeat. Committed offsets are those of all groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from kio.schema.errors import ErrorCode

from headrace.core.errors import GroupSizeConflict, HeadraceError, InvalidInput
from headrace.core.limits import ID_CHARACTERS_MAX
from headrace.core.names import check_group_name, check_topic_name
from headrace.core.rights import Right
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.groups.members import check_native, code_named
from headrace.protocols.kafka.apis.topic_ids import topic_number, topic_uuid
from headrace.protocols.kafka.coordinator.consumer_group import (
    JOINING,
    PAUSING,
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerMember,
    MemberSubscription,
    Owned,
)
from headrace.protocols.kafka.coordinator.group import GroupError
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
        coordinator.consumer_leave(group_id, request.member_id, request.instance_id, request.member_epoch)
        return {"member_id": request.member_id, "member_epoch": request.member_epoch, "assignment": None}
    if request.server_assignor not in _ASSIGNORS:
        return _refused(ErrorCode.unsupported_assignor, "assignors are uniform and range")
    for field in (request.member_id, request.instance_id or "", request.rack_id or ""):
        if len(field) > ID_CHARACTERS_MAX:
            raise InvalidInput("member", f"{len(field)} characters", f"ids have at most {ID_CHARACTERS_MAX} characters")
    known = coordinator.find_consumer(group_id)
    present = None if known is None else known.members.get(request.member_id)
    subscription = _subscription(request, present)
    try:
        read = subscription.names | _matching(call, subscription.pattern, group_id)
    except pa.ArrowInvalid as error:
        return _refused(ErrorCode.invalid_regular_expression, f"{subscription.pattern[:100]!r}: {error}")
    _check_count(len(read))
    is_told = request.subscribed_topic_names is not None or getattr(request, "subscribed_topic_regex", None) is not None
    names = read if is_told or present is None or read != present.topics else None
    if names is not None:
        for name in subscription.names:
            check_topic_name(name)
            call.principal.require("join", name, group_id)
        await call.parts.bridge.call(check_native, call.parts.bridge.broker, list(names), group_id)
    member_id = request.member_id or (str(uuid.uuid4()) if request.member_epoch == JOINING else "")
    heartbeat = ConsumerHeartbeat(
        member_id,
        request.member_epoch,
        request.instance_id,
        call.client_id,
        call.host,
        request.rebalance_timeout / _MILLISECONDS,
        names,
        _owned(request.topic_partitions),
    )
    # Others may have joined or left while topics were looked up.
    known = coordinator.find_consumer(group_id)
    topics = (set() if known is None else known.topics()) | set(names or ())
    member, is_told = coordinator.consumer_heartbeat(group_id, heartbeat, await _sizes(call, topics))
    member.subscription = subscription
    if names is not None:
        call.parts.bridge.broker.outside_members.hold(group_id, names, "Kafka")
    return {
        "error_code": ErrorCode.none,
        "member_id": member.id,
        "member_epoch": member.epoch,
        "heartbeat_interval": round(call.parts.settings.heartbeat_seconds * _MILLISECONDS),
        "assignment": {"topic_partitions": _grouped(member.assigned)} if is_told else None,
    }


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
    return MemberSubscription(
        before.names if names is None else frozenset(names), before.pattern if pattern is None else pattern
    )


def _check_count(topics: int) -> None:
    if topics > TOPICS_MAX:
        raise InvalidInput("subscribed topics", str(topics), f"at most {TOPICS_MAX}")


def _matching(call: Call, pattern: str, group: str) -> frozenset[str]:
    """The topics that an expression means: their whole names match, and the caller may read them.

    By RE2, as in Kafka: no expression takes long.
    """
    if not pattern:
        return frozenset()
    names = pa.array(call.parts.bridge.broker.known_topics(), pa.string())
    found = names.filter(pc.match_substring_regex(names, f"^(?:{pattern})$")).to_pylist()
    return frozenset(name for name in found if call.principal.caller.may(Right.READ, name, group))


def _owned(given: Any) -> frozenset[Owned] | None:
    """What a member says that it owns; what is not ours cannot be."""
    if given is None:
        return None
    numbered = ((topic_number(topic.topic_id), topic.partitions) for topic in given)
    return frozenset(
        Owned(number, each) for number, partitions in numbered if number is not None for each in partitions
    )


async def _sizes(call: Call, topics: Iterable[str]) -> dict[str, tuple[int, int] | None]:
    """Number and partitions of topics; None for those that do not exist."""
    sizes: dict[str, tuple[int, int] | None] = {}
    for name in sorted(topics):
        try:
            await call.parts.bridge.know(name)
            reader = call.parts.bridge.broker.reader(name)
            sizes[name] = (reader.topic_id, reader.partitions)
        except HeadraceError:
            sizes[name] = None
    return sizes


def _grouped(places: Iterable[Owned]) -> list[dict[str, Any]]:
    partitions: dict[int, list[int]] = {}
    for place in sorted(places):
        partitions.setdefault(place.topic_id, []).append(place.partition)
    return [{"topic_id": topic_uuid(number), "partitions": each} for number, each in partitions.items()]


async def consumer_group_describe(call: Call, request: Any) -> dict[str, Any]:
    """Members, subscriptions and assignments of groups."""
    return {"groups": [_described(call, name) for name in request.group_ids]}


def _described(call: Call, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"error_code": ErrorCode.none, "group_id": name, "group_state": "Dead", "members": []}
    if not call.parts.nodes.is_coordinator(name):
        return answer | {"error_code": ErrorCode.not_coordinator}
    group = call.parts.coordinator.find_consumer(name)
    if group is None or not call.may_see_group(name, group.topics()):
        message = f"group {name!r} has no members of this protocol"
        return answer | {"error_code": ErrorCode.group_id_not_found, "error_message": message}
    return answer | {
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.epoch,
        "assignor_name": ASSIGNOR,
        "members": [_member(group, member) for member in group.members.values()],
    }


def _member(group: ConsumerGroup, member: ConsumerMember) -> dict[str, Any]:
    names = {number: name for name, (number, _) in group.sizes.items()}

    def shown(places: Iterable[Owned]) -> dict[str, Any]:
        named = {topic_uuid(number): name for number, name in names.items()}
        return {
            "topic_partitions": [{**each, "topic_name": named.get(each["topic_id"], "")} for each in _grouped(places)]
        }

    return {
        "member_id": member.id,
        "instance_id": member.instance_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": f"/{member.host}",
        "subscribed_topic_names": sorted(member.topics),
        "subscribed_topic_regex": member.subscription.pattern,
        "assignment": shown(member.assigned),
        "target_assignment": shown(member.target),
        "member_type": _CONSUMER_TYPE,
    }

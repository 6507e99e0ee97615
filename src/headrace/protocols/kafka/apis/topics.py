"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.core.checks import check_partitions
from headrace.core.errors import HeadraceError, InvalidInput, PartitionsCannotShrink, TopicExists, TopicNotFound
from headrace.core.names import check_topic_name
from headrace.core.topics.settings import TopicSettings
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.cluster import AS_CLIENTS_CHOOSE
from headrace.protocols.kafka.apis.configs import CONFIGS_ELEMENTS, settings_of, shown_configs
from headrace.protocols.kafka.apis.named import REFUSED, split
from headrace.protocols.kafka.apis.topic_ids import TopicLookup, TopicRef, ref_of, topic_uuid
from headrace.protocols.kafka.errors import code_of, message_of

_DEFAULT: Final = -1
_REPLICAS: Final = (_DEFAULT, 1)


async def create_topics(call: Call, request: Any) -> dict[str, Any]:
    """Create topics; one that exists is an error, and so is more than one replica."""
    single, repeated = split(request.topics, lambda topic: topic.name)
    changed = sum(len(each.configs) for each in single)
    elements = len(repeated) + len(single) * CONFIGS_ELEMENTS + changed
    await call.hold(elements, (each.name for each in request.topics))
    answers = [{"name": name, "configs": [], **REFUSED} for name in repeated]
    answers += [await call.parts.bridge.call(_created, call, each, request.validate_only) for each in single]
    return {"topics": answers}


def _created(call: Call, topic: Any, is_trial: bool) -> dict[str, Any]:
    try:
        return _create(call, topic, is_trial)
    finally:
        # What was required and not done.
        call.principal.forget_changes()


def _create(call: Call, topic: Any, is_trial: bool) -> dict[str, Any]:
    broker = call.parts.bridge.broker
    answer: dict[str, Any] = {"name": topic.name, "error_code": ErrorCode.none, "error_message": None, "configs": []}
    try:
        check_topic_name(topic.name)
    except InvalidInput as error:
        return answer | {"error_code": ErrorCode.invalid_topic_exception, "error_message": message_of(error)}
    try:
        call.principal.require("create_topic", topic.name)
        if _exists(broker, topic.name):
            raise TopicExists(topic.name)
    except HeadraceError as error:
        return answer | {"error_code": code_of(error), "error_message": message_of(error)}
    try:
        # Kafka's clients choose partitions themselves; native producers are to agree with them.
        settings: Any = AS_CLIENTS_CHOOSE | settings_of((each.name, each.value) for each in topic.configs)
        TopicSettings.make(**settings)
    except InvalidInput as error:
        return answer | {"error_code": ErrorCode.invalid_config, "error_message": message_of(error)}
    if topic.assignments or topic.replication_factor not in _REPLICAS:
        message = "there is one replica: leave the replication factor out or set it to 1"
        return answer | {"error_code": ErrorCode.invalid_replication_factor, "error_message": message}
    partitions = None if topic.num_partitions == _DEFAULT else topic.num_partitions
    try:
        if partitions is not None:
            check_partitions(partitions)
    except InvalidInput as error:
        return answer | {"error_code": ErrorCode.invalid_partitions, "error_message": message_of(error)}
    if is_trial:
        return answer
    try:
        with call.principal.recording():
            made = broker.create_topic(topic.name, partitions, **settings)
    except HeadraceError as error:
        return answer | {"error_code": code_of(error), "error_message": message_of(error)}
    return answer | {
        "topic_id": topic_uuid(made.id),
        "num_partitions": made.partitions,
        "replication_factor": 1,
        # kafka-topics fails without them.
        "configs": shown_configs(made.settings),
    }


def _exists(broker: Broker, name: str) -> bool:
    try:
        broker.reader(name)
    except TopicNotFound:
        return False
    return True


async def delete_topics(call: Call, request: Any) -> dict[str, Any]:
    """Delete topics, by name, or since version 6 by id."""
    refs: list[TopicRef] = [*getattr(request, "topic_names", ()), *map(ref_of, getattr(request, "topics", ()))]
    single, repeated = split(refs, lambda ref: ref)
    await call.hold(len(single) + len(repeated), (ref for ref in refs if isinstance(ref, str)))
    answers = [_named(ref) | REFUSED for ref in repeated]
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    answers += [await call.parts.bridge.call(_deleted, call, lookup, ref) for ref in single]
    return {"responses": answers}


def _named(ref: TopicRef) -> dict[str, Any]:
    return {"name": ref, "topic_id": None} if isinstance(ref, str) else {"name": None, "topic_id": ref}


def _deleted(call: Call, lookup: TopicLookup, ref: TopicRef) -> dict[str, Any]:
    answer: dict[str, Any] = {**_named(ref), "error_code": ErrorCode.none}
    try:
        answer["name"] = name = lookup.name(ref)
        with call.principal.recording():
            call.principal.require("delete_topic", name)
            call.parts.bridge.broker.delete_topic(name)
    except HeadraceError as error:
        return answer | {"error_code": code_of(error), "error_message": message_of(error)}
    return answer


async def create_partitions(call: Call, request: Any) -> dict[str, Any]:
    """Add partitions to topics."""
    single, repeated = split(request.topics, lambda topic: topic.name)
    await call.hold(len(single) + len(repeated), (each.name for each in request.topics))
    answers = [{"name": name, **REFUSED} for name in repeated]
    answers += [await call.parts.bridge.call(_grown, call, each, request.validate_only) for each in single]
    return {"results": answers}


def _grown(call: Call, topic: Any, is_trial: bool) -> dict[str, Any]:
    broker = call.parts.bridge.broker
    answer: dict[str, Any] = {"name": topic.name, "error_code": ErrorCode.none}
    try:
        with call.principal.recording():
            call.principal.require("alter_topic", topic.name)
            present = broker.reader(topic.name).partitions
            if topic.count <= present:
                raise PartitionsCannotShrink("partitions", str(topic.count), f"there are {present} already")
            if is_trial:
                call.principal.forget_changes()
            else:
                broker.alter_topic(topic.name, topic.count)
    except HeadraceError as error:
        code = ErrorCode.invalid_partitions if isinstance(error, InvalidInput) else code_of(error)
        return answer | {"error_code": code, "error_message": message_of(error)}
    return answer

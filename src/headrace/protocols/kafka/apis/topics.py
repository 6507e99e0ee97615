"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.core.errors import HeadraceError, InvalidInput, PartitionsCannotShrink, TopicExists, TopicNotFound
from headrace.core.names import check_topic_name
from headrace.core.topics.settings import TopicSettings
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.cluster import AS_CLIENTS_CHOOSE
from headrace.protocols.kafka.apis.configs import settings_of, shown_configs
from headrace.protocols.kafka.apis.topic_ids import topic_name, topic_uuid
from headrace.protocols.kafka.errors import code_of, message_of

_DEFAULT: Final = -1
_REPLICAS: Final = (_DEFAULT, 1)


async def create_topics(call: Call, request: Any) -> dict[str, Any]:
    """Create topics; one that exists is an error, and so is more than one replica."""
    answers = [await call.parts.bridge.call(_created, call, each, request.validate_only) for each in request.topics]
    return {"topics": answers}


def _created(call: Call, topic: Any, is_trial: bool) -> dict[str, Any]:
    broker = call.parts.bridge.broker
    answer: dict[str, Any] = {"name": topic.name, "error_code": ErrorCode.none, "error_message": None, "configs": []}
    try:
        check_topic_name(topic.name)
    except InvalidInput as error:
        return answer | {"error_code": ErrorCode.invalid_topic_exception, "error_message": message_of(error)}
    try:
        # Kafka's clients choose partitions themselves; native producers are to agree with them.
        settings: Any = AS_CLIENTS_CHOOSE | settings_of((each.name, each.value) for each in topic.configs)
        TopicSettings.make(**settings)
    except InvalidInput as error:
        return answer | {"error_code": ErrorCode.invalid_config, "error_message": message_of(error)}
    if topic.assignments or topic.replication_factor not in _REPLICAS:
        message = "there is one replica: leave the replication factor out or set it to 1"
        return answer | {"error_code": ErrorCode.invalid_replication_factor, "error_message": message}
    if topic.num_partitions != _DEFAULT and topic.num_partitions < 1:
        message = f"{topic.num_partitions} partitions: there must be at least one"
        return answer | {"error_code": ErrorCode.invalid_partitions, "error_message": message}
    try:
        call.principal.require("create_topic", topic.name)
        if _exists(broker, topic.name):
            raise TopicExists(topic.name)
        if is_trial:
            return answer
        partitions = None if topic.num_partitions == _DEFAULT else topic.num_partitions
        made = broker.create_topic(topic.name, partitions, **settings)
        call.principal.record_changes()
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
    named: list[tuple[str | None, UUID | None]] = [(name, None) for name in getattr(request, "topic_names", ())]
    named += [(topic.name, topic.topic_id) for topic in getattr(request, "topics", ())]
    return {"responses": [await call.parts.bridge.call(_deleted, call, *each) for each in named]}


def _deleted(call: Call, name: str | None, topic_id: UUID | None) -> dict[str, Any]:
    answer: dict[str, Any] = {"name": name, "topic_id": topic_id, "error_code": ErrorCode.none}
    try:
        if name is None:
            name = topic_name(call.parts.bridge.broker, topic_id)
            if not call.principal.caller.may_see(name):
                # Not even its name is revealed.
                return answer | {"error_code": ErrorCode.unknown_topic_id}
            answer["name"] = name
        call.principal.require("delete_topic", name)
        call.parts.bridge.broker.delete_topic(name)
        call.principal.record_changes()
    except HeadraceError as error:
        return answer | {"error_code": code_of(error), "error_message": message_of(error)}
    return answer


async def create_partitions(call: Call, request: Any) -> dict[str, Any]:
    """Add partitions to topics."""
    answers = [await call.parts.bridge.call(_grown, call, each, request.validate_only) for each in request.topics]
    return {"results": answers}


def _grown(call: Call, topic: Any, is_trial: bool) -> dict[str, Any]:
    broker = call.parts.bridge.broker
    answer: dict[str, Any] = {"name": topic.name, "error_code": ErrorCode.none}
    try:
        call.principal.require("alter_topic", topic.name)
        present = broker.reader(topic.name).partitions
        if topic.count <= present:
            raise PartitionsCannotShrink("partitions", str(topic.count), f"there are {present} already")
        if not is_trial:
            broker.alter_topic(topic.name, topic.count)
            call.principal.record_changes()
    except HeadraceError as error:
        code = ErrorCode.invalid_partitions if isinstance(error, InvalidInput) else code_of(error)
        return answer | {"error_code": code, "error_message": message_of(error)}
    return answer

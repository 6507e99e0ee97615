"""Metadata, FindCoordinator and DescribeCluster: the servers, and which of them has what (`nodes`)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.core.errors import HeadraceError, TopicNotFound
from headrace.core.topics.settings import TopicOptions
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.errors import code_of

CLUSTER_ID: Final = "headrace"
# The settings of topics that are created over Kafka.
AS_CLIENTS_CHOOSE: Final[TopicOptions] = {"key_hash": "murmur2"}
_GROUP: Final = 0
_TOPIC_IDS: Final = 0x68656164_72616365 << 64


def topic_uuid(topic_id: int) -> UUID:
    """The id of a topic as Kafka has it: another topic of the same name has another one."""
    return UUID(int=_TOPIC_IDS | topic_id)


async def metadata(call: Call, request: Any) -> dict[str, Any]:
    """Nodes, and topics with their partitions: all that the caller may see, or those that are asked for."""
    asked = request.topics
    if asked is None or (call.version == 0 and not asked):
        names = [name for name in await _topics(call) if call.principal.caller.may_see(name)]
        described = await call.parts.bridge.call(lambda: [_described(call, name, None) for name in names])
        described = [topic for topic in described if topic["error_code"] == ErrorCode.none]
    else:
        may_create = call.parts.settings.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)
        described = await call.parts.bridge.call(
            lambda: [_asked(call, topic.name, getattr(topic, "topic_id", None), may_create) for topic in asked]
        )
    return {
        "brokers": _brokers(call),
        "cluster_id": CLUSTER_ID,
        "controller_id": call.parts.nodes.own_id,
        "topics": described,
    }


async def _topics(call: Call) -> list[str]:
    call.principal.require("list_topics")
    return await call.parts.bridge.call(call.parts.bridge.broker.list_topics)


def _brokers(call: Call) -> list[dict[str, Any]]:
    return [
        {"node_id": node.id, "broker_id": node.id, "host": node.host, "port": node.port}
        for node in call.parts.nodes.all(call.advertised)
    ]


def _asked(call: Call, name: str | None, topic_id: UUID | None, may_create: bool) -> dict[str, Any]:
    if name is None:
        name = _name_of(call.parts.bridge.broker, topic_id)
    if name is None:
        return {"error_code": ErrorCode.unknown_topic_id, "name": None, "topic_id": topic_id, "partitions": []}
    described = _described(call, name, topic_id)
    if may_create and described["error_code"] == ErrorCode.unknown_topic_or_partition:
        try:
            call.principal.require("create_topic", name)
            call.parts.bridge.broker.create_topic(name, **AS_CLIENTS_CHOOSE)
            call.principal.record_changes()
        except HeadraceError:
            # The client is told that the topic does not exist.
            return described
        described = _described(call, name, None)
    return described


def _described(call: Call, name: str, topic_id: UUID | None) -> dict[str, Any]:
    described: dict[str, Any] = {"error_code": ErrorCode.none, "name": name, "topic_id": topic_id, "partitions": []}
    if not call.principal.caller.may_see(name):
        return described | {"error_code": ErrorCode.topic_authorization_failed}
    try:
        reader = call.parts.bridge.broker.reader(name)
    except HeadraceError as error:
        is_bad_name = not isinstance(error, TopicNotFound) and code_of(error) == ErrorCode.invalid_request
        return described | {"error_code": ErrorCode.invalid_topic_exception if is_bad_name else code_of(error)}
    leaders = [call.parts.nodes.leader(reader.topic_id, number) for number in range(reader.partitions)]
    partitions = [
        {
            "error_code": ErrorCode.none,
            "partition_index": number,
            "leader_id": leader,
            "leader_epoch": 0,
            "replica_nodes": [leader],
            "isr_nodes": [leader],
        }
        for number, leader in enumerate(leaders)
    ]
    return described | {"topic_id": topic_uuid(reader.topic_id), "partitions": partitions}


def _name_of(broker: Broker, topic_id: UUID | None) -> str | None:
    for name in broker.list_topics():
        try:
            if topic_id == topic_uuid(broker.reader(name).topic_id):
                return name
        except HeadraceError:
            continue
    return None


async def find_coordinator(call: Call, request: Any) -> dict[str, Any]:
    """The server that knows the members of a group; of transactions there is none."""
    is_group = getattr(request, "key_type", _GROUP) == _GROUP
    if hasattr(request, "coordinator_keys"):
        return {"coordinators": [_coordinator(call, key, is_group) for key in request.coordinator_keys]}
    return _coordinator(call, request.key, is_group)


def _coordinator(call: Call, key: str, is_group: bool) -> dict[str, Any]:
    if not is_group:
        message = "transactions and share groups are not supported"
        refused = ErrorCode.transactional_id_authorization_failed
        return {"error_code": refused, "error_message": message, "key": key, "node_id": -1, "host": "", "port": -1}
    node_id = call.parts.nodes.coordinator(key)
    node = next(node for node in call.parts.nodes.all(call.advertised) if node.id == node_id)
    return {"error_code": ErrorCode.none, "key": key, "node_id": node.id, "host": node.host, "port": node.port}


async def describe_cluster(call: Call, request: Any) -> dict[str, Any]:
    """The servers."""
    return {
        "error_code": ErrorCode.none,
        "cluster_id": CLUSTER_ID,
        "controller_id": call.parts.nodes.own_id,
        "brokers": _brokers(call),
        "endpoint_type": 1,
    }

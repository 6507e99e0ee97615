"""Metadata, DescribeTopicPartitions, FindCoordinator, DescribeCluster: the servers, and which has what (`nodes`)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.core.errors import HeadraceError, TopicNotFound
from headrace.core.topics.settings import TopicOptions
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.topic_ids import topic_name, topic_uuid
from headrace.protocols.kafka.errors import code_of

CLUSTER_ID: Final = "headrace"
# The settings of topics that are created over Kafka.
AS_CLIENTS_CHOOSE: Final[TopicOptions] = {"key_hash": "murmur2"}
_GROUP: Final = 0
_TRANSACTION: Final = 1
# What DescribeTopicPartitions gives at once.
PARTITIONS_PER_ANSWER: Final = 2_000


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
        "error_code": ErrorCode.none,
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
        try:
            name = topic_name(call.parts.bridge.broker, topic_id)
        except HeadraceError as error:
            return {"error_code": code_of(error), "name": None, "topic_id": topic_id, "partitions": []}
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
            # The Java client fails without them.
            "eligible_leader_replicas": [],
            "last_known_elr": [],
        }
        for number, leader in enumerate(leaders)
    ]
    return described | {"topic_id": topic_uuid(reader.topic_id), "partitions": partitions}


async def describe_topic_partitions(call: Call, request: Any) -> dict[str, Any]:
    """Topics with their partitions, in the order of their names, so many at once; a cursor says where to go on."""
    asked = sorted({topic.name for topic in request.topics})
    names = asked or sorted(name for name in await _topics(call) if call.principal.caller.may_see(name))
    first = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names[:1] == [request.cursor.topic_name]:
            first = max(0, request.cursor.partition_index)
    most = min(max(1, request.response_partition_limit), PARTITIONS_PER_ANSWER)
    topics, cursor = await call.parts.bridge.call(_page, call, names, first, most)
    return {"topics": topics, "next_cursor": cursor}


def _page(call: Call, names: list[str], first: int, most: int) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Topics until there are `most` partitions, beginning with partition `first` of the first one."""
    topics: list[dict[str, Any]] = []
    for name in names:
        if most <= 0:
            return topics, {"topic_name": name, "partition_index": 0}
        topic = _described(call, name, None)
        partitions = topic["partitions"][first : first + most]
        topics.append(topic | {"partitions": partitions})
        if first + len(partitions) < len(topic["partitions"]):
            return topics, {"topic_name": name, "partition_index": first + len(partitions)}
        # A topic counts even if it has an error and no partition: the answer is bounded.
        first, most = 0, most - max(1, len(partitions))
    return topics, None


async def find_coordinator(call: Call, request: Any) -> dict[str, Any]:
    """The server that knows the members of a group; of transactions and share groups there is none."""
    kind = getattr(request, "key_type", _GROUP)
    if hasattr(request, "coordinator_keys"):
        return {"coordinators": [_coordinator(call, key, kind) for key in request.coordinator_keys]}
    return _coordinator(call, request.key, kind)


def _coordinator(call: Call, key: str, kind: int) -> dict[str, Any]:
    if kind != _GROUP:
        # Clients give up transactions at this code, and try again at most others.
        refused, message = ErrorCode.transactional_id_authorization_failed, "transactions are not supported"
        if kind != _TRANSACTION:
            refused, message = ErrorCode.invalid_request, "share groups are not supported"
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

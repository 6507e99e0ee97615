"""Metadata, DescribeTopicPartitions, FindCoordinator, DescribeCluster: the servers, and which has what (`nodes`)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import numpy as np
from kio.schema.errors import ErrorCode

from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import HeadraceError, InvalidInput, TopicNotFound
from headrace.core.topics.settings import TopicOptions
from headrace.protocols.kafka.apis.acls import cluster_operations
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.topic_ids import TopicLookup, TopicRef, ref_of, topic_uuid
from headrace.protocols.kafka.errors import code_of
from headrace.protocols.kafka.messages.rows import NumberRows

CLUSTER_ID: Final = "headrace"
# The settings of topics that are created over Kafka.
AS_CLIENTS_CHOOSE: Final[TopicOptions] = {"key_hash": "murmur2"}
_GROUP: Final = 0
_TRANSACTION: Final = 1
# Kinds of what a client connects to.
_SERVERS: Final = 1
_CONTROLLERS: Final = 2
# What DescribeTopicPartitions gives at once.
PARTITIONS_PER_ANSWER: Final = 2_000


@dataclass(frozen=True, slots=True)
class _Found:
    """A topic that is to be described, or why it cannot be; and which of its partitions."""

    name: str | None
    topic_id: UUID | None
    reader: TopicReader | None
    error: ErrorCode
    partitions: range = range(0)

    def part(self, first: int, most: int) -> _Found:
        """The same with no more than these partitions."""
        return replace(self, partitions=self.partitions[first : first + most])


async def metadata(call: Call, request: Any) -> dict[str, Any]:
    """Nodes, and topics with their partitions: all that the caller may see, or those that are asked for."""
    asked = request.topics
    if asked is None or (call.version == 0 and not asked):
        call.principal.require("list_topics")
        found = await call.parts.bridge.call(_all, call)
    else:
        may_create = call.parts.settings.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)
        found = await call.parts.bridge.call(_asked, call, asked, may_create)
    try:
        topics = await _described(call, found)
    except InvalidInput:
        # Too large for this server: every topic says so, for clients that can ask for fewer.
        refused = [_Found(each.name, each.topic_id, None, ErrorCode.invalid_request) for each in found]
        topics = await _described(call, refused)
    return {
        "brokers": _brokers(call),
        "cluster_id": CLUSTER_ID,
        "controller_id": call.parts.nodes.own_id,
        "topics": topics,
        "error_code": ErrorCode.none,
        **_operations(call, request),
    }


def _brokers(call: Call) -> list[dict[str, Any]]:
    return [
        {"node_id": node.id, "broker_id": node.id, "host": node.host, "port": node.port}
        for node in call.parts.nodes.all(call.advertised)
    ]


def _all(call: Call) -> list[_Found]:
    """All topics that the caller may see."""
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    found = [_found(call, lookup, name, None) for name in _names(call)]
    return [each for each in found if each.error == ErrorCode.none]


def _names(call: Call) -> list[str]:
    return [name for name in call.parts.bridge.broker.list_topics() if call.principal.caller.may_see(name)]


def _asked(call: Call, topics: Any, may_create: bool) -> list[_Found]:
    """The topics that are asked for, each once however often it is named; missing ones are created."""
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    return [_found_or_made(call, lookup, ref, may_create) for ref in dict.fromkeys(map(ref_of, topics))]


def _found_or_made(call: Call, lookup: TopicLookup, ref: TopicRef, may_create: bool) -> _Found:
    topic_id = None if isinstance(ref, str) else ref
    try:
        name = lookup.name(ref)
    except HeadraceError as error:
        return _Found(None, topic_id, None, code_of(error))
    found = _found(call, lookup, name, topic_id)
    if may_create and topic_id is None and found.error == ErrorCode.unknown_topic_or_partition:
        try:
            with call.principal.recording():
                call.principal.require("create_topic", name)
                call.parts.bridge.broker.create_topic(name, **AS_CLIENTS_CHOOSE)
        except HeadraceError:
            # The client is told that the topic does not exist.
            return found
        found = _found(call, lookup, name, None)
    return found


def _found(call: Call, lookup: TopicLookup, name: str, topic_id: UUID | None) -> _Found:
    if not call.principal.caller.may_see(name):
        return _Found(name, topic_id, None, ErrorCode.topic_authorization_failed)
    try:
        reader = lookup.reader(name)
    except HeadraceError as error:
        is_bad_name = not isinstance(error, TopicNotFound) and code_of(error) == ErrorCode.invalid_request
        return _Found(name, topic_id, None, ErrorCode.invalid_topic_exception if is_bad_name else code_of(error))
    return _Found(name, topic_uuid(reader.topic_id), reader, ErrorCode.none, range(reader.partitions))


async def _described(call: Call, found: list[_Found]) -> list[dict[str, Any]]:
    """Topics with their partitions, once there is room for the answer; InvalidInput if there never is."""
    elements = len(found) + sum(len(each.partitions) for each in found)
    await call.hold(elements, (each.name or "" for each in found))
    return await call.work(elements, lambda: [_topic(call, each) for each in found])


def _topic(call: Call, found: _Found) -> dict[str, Any]:
    described = {"error_code": found.error, "name": found.name, "topic_id": found.topic_id}
    if found.reader is None:
        return {**described, "partitions": []}
    reader, first, stop = found.reader, found.partitions.start, found.partitions.stop
    leaders = call.parts.nodes.leaders(reader.topic_id, reader.partitions)[first:stop]
    return {
        **described,
        "partitions": NumberRows(_partition, number=np.arange(first, stop, dtype=np.int32), leader=leaders),
    }


def _partition(number: int, leader: int) -> dict[str, Any]:
    return {
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


async def describe_topic_partitions(call: Call, request: Any) -> dict[str, Any]:
    """Topics with their partitions, in the order of their names, so many at once; a cursor says where to go on."""
    if not request.topics:
        call.principal.require("list_topics")
    found, cursor = await call.parts.bridge.call(_page, call, request)
    return {"topics": await _described(call, found), "next_cursor": cursor}


def _page(call: Call, request: Any) -> tuple[list[_Found], dict[str, Any] | None]:
    """Topics until there are enough partitions, from the cursor on."""
    names = sorted({topic.name for topic in request.topics} or _names(call))
    most = min(max(1, request.response_partition_limit), PARTITIONS_PER_ANSWER)
    first = 0
    if request.cursor is not None:
        names = names[bisect_left(names, request.cursor.topic_name) :]
        if names[:1] == [request.cursor.topic_name]:
            first = max(0, request.cursor.partition_index)
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    topics: list[_Found] = []
    for name in names:
        if most <= 0:
            return topics, {"topic_name": name, "partition_index": 0}
        topic = _found(call, lookup, name, None)
        part = topic.part(first, most)
        topics.append(part)
        if first + len(part.partitions) < len(topic.partitions):
            return topics, {"topic_name": name, "partition_index": first + len(part.partitions)}
        # A topic counts even if it has an error and no partition: the answer is bounded.
        first, most = 0, most - max(1, len(part.partitions))
    return topics, None


async def find_coordinator(call: Call, request: Any) -> dict[str, Any]:
    """The server that knows the members of a group, or refuses transactions; of share groups there is none."""
    kind = getattr(request, "key_type", _GROUP)
    if not hasattr(request, "coordinator_keys"):
        return _coordinators(call, [request.key], kind)[0]
    keys = list(dict.fromkeys(request.coordinator_keys))
    await call.hold(len(keys), keys)
    return {"coordinators": await call.work(len(keys), _coordinators, call, keys, kind)}


def _coordinators(call: Call, keys: list[str], kind: int) -> list[dict[str, Any]]:
    # Clients that look for a coordinator of transactions try again at most errors, and give up at InitProducerId.
    if kind not in (_GROUP, _TRANSACTION):
        refused, message = ErrorCode.invalid_request, "share groups are not supported"
        nobody = {"error_code": refused, "error_message": message, "node_id": -1, "host": "", "port": -1}
        return [{**nobody, "key": key} for key in keys]
    nodes = call.parts.nodes.coordinators(keys, call.advertised)
    return [
        {"error_code": ErrorCode.none, "key": key, "node_id": node.id, "host": node.host, "port": node.port}
        for key, node in zip(keys, nodes, strict=True)
    ]


async def describe_cluster(call: Call, request: Any) -> dict[str, Any]:
    """The servers. Clients may say what they take this for, which is a server and no controller."""
    if (kind := getattr(request, "endpoint_type", _SERVERS)) != _SERVERS:
        code = ErrorCode.mismatched_endpoint_type if kind == _CONTROLLERS else ErrorCode.unsupported_endpoint_type
        return {"error_code": code, "endpoint_type": _SERVERS, "cluster_id": "", "brokers": []}
    return {
        "error_code": ErrorCode.none,
        "cluster_id": CLUSTER_ID,
        "controller_id": call.parts.nodes.own_id,
        "brokers": _brokers(call),
        "endpoint_type": _SERVERS,
        **_operations(call, request),
    }


def _operations(call: Call, request: Any) -> dict[str, int]:
    """What the caller may do with the cluster, if it asks."""
    is_asked = getattr(request, "include_cluster_authorized_operations", False)
    return {"cluster_authorized_operations": cluster_operations(call.principal.caller)} if is_asked else {}

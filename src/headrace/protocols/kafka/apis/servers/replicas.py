"""ElectLeaders, ListPartitionReassignments and DescribeQuorum: partitions have one replica each, which leads.

Nothing can be elected or moved, and the servers agree through the store instead of a quorum of their own: what tools
ask about these is answered so that they go on.
"""

from __future__ import annotations

import time
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.core.errors import HeadraceError
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.topic_ids import TopicLookup
from headrace.protocols.kafka.errors import code_of, message_of

METADATA_TOPIC: Final = "__cluster_metadata"
_NOT_NEEDED: Final[dict[str, Any]] = {
    "error_code": ErrorCode.election_not_needed,
    "error_message": "the partition has one replica, which leads it",
}
_UNKNOWN: Final[dict[str, Any]] = {
    "error_code": ErrorCode.unknown_topic_or_partition,
    "error_message": "there is no such partition",
}


async def elect_leaders(call: Call, request: Any) -> dict[str, Any]:
    """No election is ever needed; of all partitions there is nothing to say."""
    call.principal.require("whoami")
    topics = request.topic_partitions or ()
    named: dict[str, dict[int, None]] = {}
    for topic in topics:
        named.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    await call.hold(len(named) + sum(map(len, named.values())), named)
    results = await call.parts.bridge.call(_elections, call, named)
    return {"error_code": ErrorCode.none, "replica_election_results": results}


def _elections(call: Call, named: dict[str, dict[int, None]]) -> list[dict[str, Any]]:
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    return [
        {"topic": topic, "partition_result": _of_topic(call, lookup, topic, partitions)}
        for topic, partitions in named.items()
    ]


def _of_topic(call: Call, lookup: TopicLookup, topic: str, partitions: dict[int, None]) -> list[dict[str, Any]]:
    try:
        call.principal.require("describe_topic", topic)
        count = lookup.reader(topic).partitions
    except HeadraceError as error:
        refused = {"error_code": code_of(error), "error_message": message_of(error)}
        return [{"partition_id": number, **refused} for number in partitions]
    return [{"partition_id": number, **(_NOT_NEEDED if 0 <= number < count else _UNKNOWN)} for number in partitions]


async def list_partition_reassignments(call: Call, request: Any) -> dict[str, Any]:
    """None is under way."""
    call.principal.require("whoami")
    return {"error_code": ErrorCode.none, "topics": []}


async def describe_quorum(call: Call, request: Any) -> dict[str, Any]:
    """The servers, of which the one that is asked counts as the leader."""
    call.principal.require("whoami")
    nodes, now_ms = call.parts.nodes.all(call.advertised), time.time_ns() // 1_000_000
    names = dict.fromkeys(topic.topic_name for topic in request.topics)
    await call.hold(2 * len(nodes) + len(names), names)
    voters = [
        {
            "replica_id": node.id,
            "log_end_offset": 0,
            "last_fetch_timestamp": now_ms,
            "last_caught_up_timestamp": now_ms,
        }
        for node in nodes
    ]
    partition = {
        "partition_index": 0,
        "error_code": ErrorCode.none,
        "leader_id": call.parts.nodes.own_id,
        "leader_epoch": 0,
        "high_watermark": 0,
        "current_voters": voters,
        "observers": [],
    }
    unknown = {"partition_index": 0, **_UNKNOWN, "current_voters": [], "observers": []}
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {"topic_name": name, "partitions": [partition if name == METADATA_TOPIC else unknown]} for name in names
        ],
        "nodes": [
            {"node_id": node.id, "listeners": [{"name": "CLIENTS", "host": node.host, "port": node.port}]}
            for node in nodes
        ],
    }

"""ListOffsets and OffsetForLeaderEpoch: where partitions begin and end, and where a time is.

A time is looked for among the broker's times, which grow with the offsets; those that producers give need not. Since a
message is stored after it was created, no message created at or after the time is passed over.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.core.errors import HeadraceError, PartitionNotFound
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.errors import code_of

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_MILLISECOND_US: Final = 1000
_NOTHING: Final[dict[str, Any]] = {"offset": -1, "timestamp": -1}


async def list_offsets(call: Call, request: Any) -> dict[str, Any]:
    """The offset at a time, or at either end, of each partition."""
    return {"topics": await call.parts.bridge.call(_topics, call, request.topics)}


def _topics(call: Call, topics: Any) -> list[dict[str, Any]]:
    broker = call.parts.bridge.broker
    return [
        {"name": topic.name, "partitions": [_partition(call, broker, topic.name, each) for each in topic.partitions]}
        for topic in topics
    ]


def _partition(call: Call, broker: Broker, topic: str, asked: Any) -> dict[str, Any]:
    answer = {"partition_index": asked.partition_index, "error_code": ErrorCode.none, "leader_epoch": 0}
    try:
        call.principal.require("offset_at" if asked.timestamp >= 0 else "offsets", topic)
        return answer | _offset(broker, topic, asked.partition_index, asked.timestamp)
    except HeadraceError as error:
        return answer | {"error_code": code_of(error), "leader_epoch": -1}


def _offset(broker: Broker, topic: str, partition: int, time_ms: int) -> dict[str, Any]:
    offsets = broker.reader(topic).offsets()
    if not 0 <= partition < len(offsets.end):
        raise PartitionNotFound(topic, partition, len(offsets.end))
    start, end = int(offsets.start[partition]), int(offsets.end[partition])
    if time_ms == _LATEST:
        return {"offset": end, "timestamp": -1}
    if time_ms in (_EARLIEST, _EARLIEST_LOCAL):
        return {"offset": start, "timestamp": -1}
    if time_ms == _LATEST_TIERED:
        return _NOTHING
    if time_ms == _MAX_TIMESTAMP:
        found = end - 1
    else:
        found = broker.offset_at(topic, partition, max(0, time_ms) * _MILLISECOND_US)
    if not start <= found < end:
        return _NOTHING
    batch = broker.fetch(topic, partition, found, max_messages=1)
    time_us = batch.column("timestamp").cast("int64")[0].as_py()
    return {"offset": found, "timestamp": time_us // _MILLISECOND_US}


async def offset_for_leader_epoch(call: Call, request: Any) -> dict[str, Any]:
    """The end of each partition: there is one epoch, since nothing is ever truncated."""
    return {"topics": await call.parts.bridge.call(_ends, call, request.topics)}


def _ends(call: Call, topics: Any) -> list[dict[str, Any]]:
    broker = call.parts.bridge.broker
    return [
        {
            "topic": topic.topic,
            "partitions": [_end(call, broker, topic.topic, each.partition) for each in topic.partitions],
        }
        for topic in topics
    ]


def _end(call: Call, broker: Broker, topic: str, partition: int) -> dict[str, Any]:
    try:
        call.principal.require("offsets", topic)
        end = _offset(broker, topic, partition, _LATEST)["offset"]
        return {"error_code": ErrorCode.none, "partition": partition, "leader_epoch": 0, "end_offset": end}
    except HeadraceError as error:
        return {"error_code": code_of(error), "partition": partition}

"""ListOffsets and OffsetForLeaderEpoch: where partitions begin and end, and where a time is.

A time is looked for among the broker's times, which grow with the offsets; those that producers give need not. Since a
message is stored after it was created, no message created at or after the time is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.core.errors import HeadraceError, PartitionNotFound
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.errors import code_of
from headrace.storage.ranges import OffsetRange

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6
_WORDS: Final = frozenset({_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED})
_MILLISECOND_US: Final = 1000
_NOTHING: Final[dict[str, Any]] = {"offset": -1, "timestamp": -1}


async def list_offsets(call: Call, request: Any) -> dict[str, Any]:
    """The offset at a time, or at either end, of each partition."""
    return {"topics": await call.parts.bridge.call(_topics, call, request.topics)}


def _topics(call: Call, topics: Any) -> list[dict[str, Any]]:
    broker = call.parts.bridge.broker
    return [
        {"name": topic.name, "partitions": _partitions(call, broker, topic.name, topic.partitions)} for topic in topics
    ]


def _partitions(call: Call, broker: Broker, topic: str, asked: Any) -> list[dict[str, Any]]:
    """The answers for a topic, whose bounds are looked up once, as is each time."""
    try:
        for operation in {"offsets" if each.timestamp in _WORDS else "offsets_at" for each in asked}:
            call.principal.require(operation, topic)
        bounds = broker.reader(topic).offsets()
        by_time: dict[int, list[int]] = {}
        for each in asked:
            if each.timestamp not in _WORDS and 0 <= each.partition_index < len(bounds.end):
                by_time.setdefault(each.timestamp, []).append(each.partition_index)
        at_times = {
            time_ms: broker.offsets_at(topic, max(0, time_ms) * _MILLISECOND_US, chosen)
            for time_ms, chosen in by_time.items()
        }
    except HeadraceError as error:
        return [_failed(each.partition_index, error) for each in asked]
    return [_partition(broker, topic, bounds, each, at_times.get(each.timestamp, {})) for each in asked]


def _partition(
    broker: Broker, topic: str, bounds: OffsetRange, asked: Any, at_time: Mapping[int, int]
) -> dict[str, Any]:
    partition = asked.partition_index
    answer = {"partition_index": partition, "error_code": ErrorCode.none, "leader_epoch": 0}
    try:
        return answer | _offset(broker, topic, bounds, partition, asked.timestamp, at_time.get(partition))
    except HeadraceError as error:
        return _failed(partition, error)


def _failed(partition: int, error: HeadraceError) -> dict[str, Any]:
    return {"partition_index": partition, "error_code": code_of(error), "leader_epoch": -1}


def _bounds(topic: str, partition: int, bounds: OffsetRange) -> tuple[int, int]:
    if not 0 <= partition < len(bounds.end):
        raise PartitionNotFound(topic, partition, len(bounds.end))
    return int(bounds.start[partition]), int(bounds.end[partition])


def _offset(
    broker: Broker, topic: str, bounds: OffsetRange, partition: int, time_ms: int, at_time: int | None
) -> dict[str, Any]:
    start, end = _bounds(topic, partition, bounds)
    if time_ms == _LATEST:
        return {"offset": end, "timestamp": -1}
    if time_ms in (_EARLIEST, _EARLIEST_LOCAL):
        return {"offset": start, "timestamp": -1}
    if time_ms in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    found = end - 1 if at_time is None else at_time
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
        _, end = _bounds(topic, partition, broker.reader(topic).offsets())
        return {"error_code": ErrorCode.none, "partition": partition, "leader_epoch": 0, "end_offset": end}
    except HeadraceError as error:
        return {"error_code": code_of(error), "partition": partition}

"""DeleteRecords: deletes the messages of partitions below an offset.

Partitions of a request succeed or fail each by itself, as with Kafka. An offset of -1 is the end of the partition. The
partitions of a topic are changed together; if an important group holds some of them, these are found by halves.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.core.errors import HeadraceError, OffsetOutOfRange, PartitionNotFound
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.named import named_partitions
from headrace.protocols.kafka.errors import code_of

_END: Final = -1
_UNKNOWN: Final = -1


async def delete_records(call: Call, request: Any) -> dict[str, Any]:
    """Delete what is below an offset of each partition; the answer has where each starts now."""
    asked = await named_partitions(call, request.topics, "name", "partition_index")
    return {
        "topics": [
            {"name": name, "partitions": await _deleted(call, name, partitions)}
            for name, partitions in asked.topics.items()
        ]
    }


async def _deleted(call: Call, topic: str, asked: Mapping[int, Any]) -> list[dict[str, Any]]:
    answers, before = await call.parts.bridge.call(_checked, call, topic, asked)
    parts = [before] if before else []
    while parts:
        part = parts.pop()
        try:
            starts = await call.parts.bridge.call(call.parts.bridge.broker.delete_messages, topic, part)
            call.principal.record_changes()
        except HeadraceError as error:
            if len(part) > 1:
                half = iter(part.items())
                parts += [dict(islice(half, len(part) // 2)), dict(half)]
                continue
            answers |= {partition: _failed(partition, error) for partition in part}
        else:
            answers |= {partition: _answer(partition, ErrorCode.none, start) for partition, start in starts.items()}
    # Of a topic in which nothing was deleted nothing is recorded.
    call.principal.forget_changes()
    return [answers[partition] for partition in asked]


def _checked(call: Call, topic: str, asked: Mapping[int, Any]) -> tuple[dict[int, dict[str, Any]], dict[int, int]]:
    """Answers for partitions that cannot be, and for the others the offset below which is deleted."""
    try:
        call.principal.require("delete_messages", topic)
        present = call.parts.bridge.broker.offsets(topic)
    except HeadraceError as error:
        return {partition: _failed(partition, error) for partition in asked}, {}
    answers: dict[int, dict[str, Any]] = {}
    before: dict[int, int] = {}
    for partition, each in asked.items():
        if partition not in present:
            answers[partition] = _failed(partition, PartitionNotFound(topic, partition, len(present)))
            continue
        start, end = present[partition]
        offset = end if each.offset == _END else each.offset
        if 0 <= offset <= end:
            before[partition] = offset
        else:
            answers[partition] = _failed(partition, OffsetOutOfRange(topic, partition, offset, start, end))
    return answers, before


def _failed(partition: int, error: HeadraceError) -> dict[str, Any]:
    return _answer(partition, code_of(error), _UNKNOWN)


def _answer(partition: int, code: ErrorCode, start: int) -> dict[str, Any]:
    return {"partition_index": partition, "error_code": code, "low_watermark": start}

"""DeleteRecords: deletes the messages of partitions below an offset.

Partitions of a request succeed or fail each by itself, as with Kafka. An offset of -1 is the end of the partition.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.core.errors import HeadraceError, OffsetOutOfRange, PartitionNotFound
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.errors import code_of

_END: Final = -1
_UNKNOWN: Final = -1


async def delete_records(call: Call, request: Any) -> dict[str, Any]:
    """Delete what is below an offset of each partition; the answer has where each starts now."""
    return {"topics": [await call.parts.bridge.call(_topic, call, each) for each in request.topics]}


def _topic(call: Call, topic: Any) -> dict[str, Any]:
    return {"name": topic.name, "partitions": [_deleted(call, topic.name, each) for each in topic.partitions]}


def _deleted(call: Call, topic: str, asked: Any) -> dict[str, Any]:
    partition, broker = asked.partition_index, call.parts.bridge.broker
    answer: dict[str, Any] = {"partition_index": partition}
    try:
        call.principal.require("delete_messages", topic)
        present = broker.offsets(topic)
        if partition not in present:
            raise PartitionNotFound(topic, partition, len(present))
        start, end = present[partition]
        before = end if asked.offset == _END else asked.offset
        if before < 0:
            raise OffsetOutOfRange(topic, partition, before, start, end)
        start = broker.delete_messages(topic, {partition: before})[partition]
        call.principal.record_changes()
    except HeadraceError as error:
        return answer | {"error_code": code_of(error), "low_watermark": _UNKNOWN}
    return answer | {"error_code": ErrorCode.none, "low_watermark": start}

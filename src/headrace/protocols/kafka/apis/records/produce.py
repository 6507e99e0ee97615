"""Produce: record batches to messages, written once per topic and commit, answered per partition.

Whatever a client wants to wait for, its answer means that the messages are on the device: acks of 1 and all are the
same here. With acks of 0 nothing is answered; if anything fails, the connection is closed, as Kafka does.

`begin_produce` returns once the records are decoded and stand in line, in the order of requests; what it returns waits
for the outcome. A partition that fails leaves the others alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from kio.schema.errors import ErrorCode

from headrace.core.errors import HeadraceError, InvalidInput, InvalidMessage, PartitionNotFound
from headrace.core.limits import LOOP_BYTES_MAX
from headrace.core.messages import join
from headrace.core.publish.receipts import WRITTEN, Receipts
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.errors import code_of, message_of
from headrace.protocols.kafka.idempotence import UNKNOWN_OFFSET, source_of
from headrace.protocols.kafka.records.decode import RecordBatch, decode_many
from headrace.protocols.kafka.records.header import NO_PRODUCER, BadRecords

_NO_ACKS: Final = 0
_ACKS: Final = (-1, 0, 1)


@dataclass(frozen=True, slots=True)
class _Part:
    """What a request has for one partition, as it came."""

    topic: str
    partition: int
    records: memoryview | None


async def begin_produce(call: Call, request: Any) -> Awaitable[dict[str, Any] | None]:
    """Put the records of a request in line; the answer, or none if the client wants none, is awaited afterwards."""
    parts = [
        _Part(topic.name, partition.index, partition.records)
        for topic in request.topic_data
        for partition in topic.partition_data
    ]
    refusal = _refusal(request)
    outcomes: list[Awaitable[int] | Exception]
    if refusal is not None:
        outcomes = [refusal] * len(parts)
    else:
        for topic in {part.topic for part in parts}:
            await call.parts.bridge.know(topic)
        size = sum(len(part.records or b"") for part in parts)
        # What decompresses to more is bounded too, and rare.
        decoded = (
            _decoded(call, parts) if size <= LOOP_BYTES_MAX else await call.parts.bridge.call(_decoded, call, parts)
        )
        outcomes = _published(call, parts, decoded)
    return _answer(parts, outcomes, request.acks != _NO_ACKS)


def _refusal(request: Any) -> Exception | None:
    if request.acks not in _ACKS:
        return _BadAcks(f"acks is {request.acks}: it must be -1, 0 or 1")
    if request.transactional_id is not None:
        return _Transactional("transactions are not supported")
    return None


class _BadAcks(BadRecords):
    error = "invalid_required_acks"


class _Transactional(BadRecords):
    error = "transactional_id_authorization_failed"


def _decoded(call: Call, parts: list[_Part]) -> list[RecordBatch | Exception]:
    """The messages of each partition, or why they are refused."""
    refused = [_place_refusal(call, part) for part in parts]
    records = [part.records for part, error in zip(parts, refused, strict=True) if error is None and part.records]
    decoded = iter(decode_many(records, call.parts.settings.records_bytes_max))
    found: list[RecordBatch | Exception] = []
    for part, error in zip(parts, refused, strict=True):
        batch = error or (next(decoded) if part.records else BadRecords("there are no records"))
        found.append(batch if isinstance(batch, Exception) else _producer_refusal(call, part, batch) or batch)
    return found


def _place_refusal(call: Call, part: _Part) -> HeadraceError | None:
    """Why nothing may be written to a partition, if so."""
    try:
        call.principal.require("publish", part.topic)
        count = call.parts.bridge.broker.reader(part.topic).partitions
        if not 0 <= part.partition < count:
            raise PartitionNotFound(part.topic, part.partition, count)
    except HeadraceError as error:
        return error
    return None


def _producer_refusal(call: Call, part: _Part, batch: RecordBatch) -> HeadraceError | None:
    """Why the caller may not write as the producer that a batch names, if so."""
    if batch.header.producer_id == NO_PRODUCER:
        return None
    try:
        call.principal.require("publish", part.topic, producer=source_of(batch.header.producer_id))
    except HeadraceError as error:
        return error
    return None


def _published(
    call: Call, parts: list[_Part], decoded: list[RecordBatch | Exception]
) -> list[Awaitable[int] | Exception]:
    """Put the messages in line: those of a topic together, those of idempotent producers by partition."""
    outcomes: list[Awaitable[int] | Exception] = []
    together: dict[str, list[tuple[asyncio.Future[int], pa.RecordBatch]]] = {}
    for part, records in zip(parts, decoded, strict=True):
        if isinstance(records, Exception):
            outcomes.append(records)
            continue
        partition = pa.array(np.full(records.columns.num_rows, part.partition, np.int32))
        batch = records.columns.append_column("partition", partition)
        if records.header.producer_id != NO_PRODUCER:
            numbered = call.parts.sequences.publish(part.topic, part.partition, records.header, batch)
            outcomes.append(asyncio.ensure_future(numbered))
        else:
            waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            outcomes.append(waiting)
            together.setdefault(part.topic, []).append((waiting, batch))
    for topic, group in together.items():
        call.parts.bridge.start(_publish_together(call, topic, group))
    return outcomes


async def _publish_together(call: Call, topic: str, group: list[tuple[asyncio.Future[int], pa.RecordBatch]]) -> None:
    """Write the messages of several partitions in one commit; if one of them is not valid, each by itself."""
    try:
        receipts = await call.parts.bridge.publish(topic, join([batch for _, batch in group]))
    except InvalidInput as error:
        if len(group) == 1:
            _settle(group[0][0], error)
        else:
            await asyncio.gather(*(_publish_together(call, topic, [each]) for each in group))
        return
    except Exception as error:
        for future, _ in group:
            _settle(future, error)
        return
    first = 0
    for future, batch in group:
        _settle(future, _first_offset(receipts.slice(first, first + batch.num_rows)))
        first += batch.num_rows


def _settle(future: asyncio.Future[int], outcome: int | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _first_offset(receipts: Receipts) -> int:
    written = np.flatnonzero(receipts.outcome == WRITTEN)
    return int(receipts.offset[written[0]]) if len(written) else UNKNOWN_OFFSET


async def _answer(
    parts: list[_Part], outcomes: list[Awaitable[int] | Exception], is_wanted: bool
) -> dict[str, Any] | None:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    failure: Exception | None = None
    for part, outcome in zip(parts, outcomes, strict=True):
        answer: dict[str, Any] = {"index": part.partition, "error_code": ErrorCode.none, "base_offset": UNKNOWN_OFFSET}
        try:
            if isinstance(outcome, Exception):
                raise outcome
            answer["base_offset"] = await outcome
        except Exception as error:
            failure = error
            answer |= {"error_code": code_of(error), "error_message": message_of(error)}
            if isinstance(error, InvalidMessage):
                answer["record_errors"] = [{"batch_index": error.row, "batch_index_error_message": str(error)[:1000]}]
        by_topic.setdefault(part.topic, []).append(answer)
    if not is_wanted:
        if failure is not None:
            raise ConnectionAbortedError(f"records without acknowledgement were refused: {message_of(failure)}")
        return None
    return {"responses": [{"name": name, "partition_responses": answers} for name, answers in by_topic.items()]}

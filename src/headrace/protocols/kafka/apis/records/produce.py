"""Produce: record batches to messages, written once per topic and commit, answered per partition.

Whatever a client wants to wait for, its answer means that the messages are on the device: acks of 1 and all are the
same here. With acks of 0 nothing is answered; if anything fails, the connection is closed, as Kafka does.

`begin_produce` takes all requests of a connection that have arrived together. It returns once their records are decoded
and stand in line, in the order of requests; what it returns waits for the outcomes. Messages of one topic are written
in one commit, those of idempotent producers by `idempotence`. A partition that fails leaves the others alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.broker.publish.commit_queue import BatchParts
from headrace.core.errors import HeadraceError, InvalidMessage, PartitionNotFound
from headrace.core.limits import LOOP_BYTES_MAX
from headrace.core.publish.receipts import Receipts
from headrace.edge.envelope.byte_budget import ByteBudget
from headrace.protocols.kafka.apis.call import Call
from headrace.protocols.kafka.apis.topic_ids import TopicLookup, TopicRef, known_name, ref_of
from headrace.protocols.kafka.errors import code_of, message_of
from headrace.protocols.kafka.idempotence import source_of
from headrace.protocols.kafka.pending_batches import UNKNOWN_OFFSET, Waiting, first_offset, joined
from headrace.protocols.kafka.records.decode import RecordBatch, decode_many
from headrace.protocols.kafka.records.header import NO_PRODUCER, BadRecords, TooManyBytes, is_compressed

_NO_ACKS: Final = 0
_ACKS: Final = (-1, 0, 1)
# What records that are decoded on the event loop may decompress to.
_LOOP_DECOMPRESSED_MAX: Final = 16 * LOOP_BYTES_MAX


@dataclass(slots=True, eq=False)
class _Part:
    """What a request has for one partition, as it came, and why it is refused before its records are looked at, if so.

    Since version 13 requests name topics by id (`ref`); one that is not known has no name. Nobody changes it; `frozen`
    would take most of the time to create one.
    """

    ref: TopicRef
    topic: str
    partition: int
    records: memoryview | None
    refusal: Exception | None


async def begin_produce(call: Call, requests: Sequence[Any]) -> list[Awaitable[dict[str, Any] | None]]:
    """Put the records of requests in line; each answer, or none if the client wants none, is awaited afterwards."""
    parts_by_request = [await _parts_of(call, request) for request in requests]
    parts = list(chain.from_iterable(parts_by_request))
    for topic in {part.topic for part in parts if part.refusal is None}:
        await call.parts.bridge.know(topic)
    outcomes = iter(await _put_in_line(call, parts))
    return [
        _answer(request_parts, list(islice(outcomes, len(request_parts))), request.acks != _NO_ACKS)
        for request, request_parts in zip(requests, parts_by_request, strict=True)
    ]


async def _parts_of(call: Call, request: Any) -> list[_Part]:
    """What a request has for each partition."""
    parts: list[_Part] = []
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    for topic in request.topic_data:
        name, refusal, ref = "", _refusal(request), ref_of(topic)
        try:
            name = ref if isinstance(ref, str) else await _name_of(call, lookup, ref)
        except HeadraceError as error:
            refusal = error
        parts += [_Part(ref, name, each.index, each.records, refusal) for each in topic.partition_data]
    return parts


async def _name_of(call: Call, lookup: TopicLookup, topic: UUID) -> str:
    """The name of a topic; one that the caller may not see is unknown to it."""
    if known_name(call.parts.bridge.broker, topic) is not None:
        return lookup.name(topic)
    return await call.parts.bridge.call(lookup.name, topic)


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


async def _put_in_line(call: Call, parts: list[_Part]) -> list[Awaitable[int] | Exception]:
    """Decode records and put them in line; a few bytes may decompress to very many, which wait for room before.

    What decompresses to more than one batch may, goes in line part by part, each when the one before is written.
    """
    budget, owner = call.parts.envelope.decompressed, call.principal.name
    outcomes: list[Awaitable[int] | Exception] = []
    while len(outcomes) < len(parts):
        remaining = parts[len(outcomes) :]
        room = call.parts.settings.records_bytes_max if any(map(_is_compressed, remaining)) else 0
        if room:
            await budget.take(room, owner)
        used = 0
        try:
            decoded = await _decoded_anywhere(call, remaining)
            published = _published(call, remaining[: len(decoded)], decoded)
            used = min(room, sum(map(_decompressed_bytes, decoded)))
        finally:
            budget.give_back(room - used, owner)
        outcomes += published
        is_all = len(outcomes) == len(parts)
        if used or not is_all:
            waiting = [each for each in published if not isinstance(each, Exception)]
            written = asyncio.gather(*waiting, return_exceptions=True)
            written.add_done_callback(partial(_give_back, budget, used, owner))
            if not is_all:
                await asyncio.wait([written])
    return outcomes


def _give_back(budget: ByteBudget, size: int, owner: str, _: object) -> None:
    budget.give_back(size, owner)


def _is_compressed(part: _Part) -> bool:
    return part.refusal is None and part.records is not None and is_compressed(part.records)


def _decompressed_bytes(decoded: RecordBatch | Exception) -> int:
    return decoded.columns.nbytes if isinstance(decoded, RecordBatch) and decoded.header.codec else 0


async def _decoded_anywhere(call: Call, parts: list[_Part]) -> list[RecordBatch | Exception]:
    """The messages of partitions, decoded on the loop if they are small, also when decompressed."""
    if sum(len(part.records or b"") for part in parts) <= LOOP_BYTES_MAX:
        decoded = _decoded(call, parts, _LOOP_DECOMPRESSED_MAX)
        if len(decoded) == len(parts) and not any(isinstance(each, TooManyBytes) for each in decoded):
            return decoded
    return await call.parts.bridge.call(_decoded, call, parts, call.parts.settings.records_bytes_max)


def _decoded(call: Call, parts: list[_Part], bytes_max: int) -> list[RecordBatch | Exception]:
    """The messages of each partition, or why they are refused; of fewer if they decompress to more than that."""
    places = _Places(call)
    refused = [part.refusal or places.refusal(part) for part in parts]
    records = [part.records for part, error in zip(parts, refused, strict=True) if error is None and part.records]
    decoded = iter(decode_many(records, bytes_max))
    found: list[RecordBatch | Exception] = []
    for part, error in zip(parts, refused, strict=True):
        batch = error or (next(decoded, None) if part.records else BadRecords("there are no records"))
        if batch is None:
            break
        found.append(batch if isinstance(batch, Exception) else _producer_refusal(call, part, batch) or batch)
    return found


class _Places:
    """Why nothing may be written to a partition, if so; a topic is looked at once."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._topics: dict[str, int | HeadraceError] = {}

    def refusal(self, part: _Part) -> HeadraceError | None:
        known = self._topics.get(part.topic)
        if known is None:
            known = self._topics[part.topic] = self._partitions(part.topic)
        if isinstance(known, HeadraceError):
            return known
        return None if 0 <= part.partition < known else PartitionNotFound(part.topic, part.partition, known)

    def _partitions(self, topic: str) -> int | HeadraceError:
        try:
            self._call.principal.require("publish", topic)
            return self._call.parts.bridge.broker.reader(topic).partitions
        except HeadraceError as error:
            return error


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
    """Put the messages in line, those of a topic together."""
    loop = asyncio.get_running_loop()
    outcomes: list[Awaitable[int] | Exception] = []
    plain: dict[str, list[Waiting]] = {}
    for part, records in zip(parts, decoded, strict=True):
        if isinstance(records, Exception):
            outcomes.append(records)
            continue
        waiting = Waiting(part.partition, records, loop.create_future())
        outcomes.append(waiting.future)
        if records.header.producer_id == NO_PRODUCER:
            plain.setdefault(part.topic, []).append(waiting)
        else:
            call.parts.sequences.publish(part.topic, waiting)
    for topic, group in plain.items():
        _publish_together(call, topic, group)
    return outcomes


def _publish_together(call: Call, topic: str, group: list[Waiting]) -> None:
    """Write the messages of several partitions in one commit; each may be refused by itself."""
    parts = BatchParts([each.rows for each in group]) if len(group) > 1 else None
    tell = partial(_settle, group, parts)
    try:
        call.parts.bridge.publish_soon(topic, joined(group), tell, parts)
    except Exception as error:
        tell(error)


def _settle(group: list[Waiting], parts: BatchParts | None, outcome: Receipts | Exception) -> None:
    """Say what became of messages that were written together."""
    refused = {} if parts is None else parts.refused
    first = 0
    for place, each in enumerate(group):
        if place in refused:
            each.settle(refused[place])
        elif isinstance(outcome, Exception):
            each.settle(outcome)
        else:
            each.settle(first_offset(outcome, first, each.rows))
            first += each.rows


async def _answer(
    parts: list[_Part], outcomes: list[Awaitable[int] | Exception], is_wanted: bool
) -> dict[str, Any] | None:
    by_topic: dict[TopicRef, list[dict[str, Any]]] = {}
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
        by_topic.setdefault(part.ref, []).append(answer)
    if not is_wanted:
        if failure is not None:
            raise ConnectionAbortedError(f"records without acknowledgement were refused: {message_of(failure)}")
        return None
    return {
        "responses": [
            {"name": ref, "topic_id": ref, "partition_responses": answers} for ref, answers in by_topic.items()
        ]
    }

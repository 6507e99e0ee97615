"""Produce: record batches to messages, written once per topic and commit, answered per partition.

Whatever a client wants to wait for, its answer means that the messages are on the device: acks of 1 and all are the
same here. With acks of 0 nothing is answered; if anything fails, the connection is closed, as Kafka does.

`begin_produce` takes all requests of a connection that have arrived together. It returns once their records are decoded
and stand in line, in the order of requests; what it returns waits for the outcomes. Messages of one topic are written
in one commit; each partition is a part of it, and one that fails leaves the others alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.broker.publish.parts import UNKNOWN_OFFSET, Part
from headrace.core.errors import HeadraceError, InvalidMessage, PartitionNotFound
from headrace.core.limits import LOOP_BYTES_MAX
from headrace.core.messages import NO_MESSAGES
from headrace.edge.envelope.byte_budget import ByteBudget
from headrace.protocols.kafka.apis.call import LOOP_ELEMENTS_MAX, Call, in_turns
from headrace.protocols.kafka.apis.topic_ids import TopicLookup, TopicRef, ref_of
from headrace.protocols.kafka.errors import code_of, message_of
from headrace.protocols.kafka.idempotence import AlreadyWritten, BatchNumbers, source_of
from headrace.protocols.kafka.records.decode import RecordBatch, decode_many
from headrace.protocols.kafka.records.header import NO_PRODUCER, BadRecords, TooManyBytes, is_compressed

_MILLISECOND_US: Final = 1000
_NO_ACKS: Final = 0
_ACKS: Final = (-1, 0, 1)
# What records that are decoded on the event loop may decompress to.
_LOOP_DECOMPRESSED_MAX: Final = 16 * LOOP_BYTES_MAX


@dataclass(slots=True, eq=False)
class _Part:
    """What a request has for one partition, as it came, and why it is refused before its records are looked at, if so.

    Since version 13 requests name topics by id (`ref`); one that is not known has no name. Nobody changes it, except
    that a refusal is added when topics are looked up; `frozen` would take most of the time to create one.
    """

    ref: TopicRef
    topic: str
    partition: int
    records: memoryview | None
    refusal: Exception | None


@dataclass(slots=True, eq=False)
class _Pending:
    """What was put in line for a topic; `done` once each of its parts has its outcome."""

    topic: str
    parts: list[Part]
    done: asyncio.Future[None]

    async def offset_of(self, call: Call, part: Part) -> int:
        """The offset of one of its parts, or raises why there is none."""
        if not self.done.done():
            # Several wait for it, and one that is cancelled must not cancel it for the others.
            await asyncio.wait((self.done,))
        if part.error is not None:
            raise _light(part.error)
        if part.repeated is not None:
            return await call.parts.written.offset_of(self.topic, part, part.repeated)
        if part.offset == UNKNOWN_OFFSET and part.numbering is not None:
            raise AlreadyWritten("messages with these payloads were written before")
        return part.offset


Outcome = tuple[_Pending, Part] | Exception


async def begin_produce(call: Call, requests: Sequence[Any]) -> list[Awaitable[dict[str, Any] | None]]:
    """Put the records of requests in line; each answer, or none if the client wants none, is awaited afterwards."""
    parts_by_request = [await _parts_of(call, request) for request in requests]
    parts = list(chain.from_iterable(parts_by_request))
    knows = call.parts.bridge.broker.knows_topic
    unknown = {part.topic for part in parts if part.refusal is None and not knows(part.topic)}
    if unknown:
        failed = await call.parts.bridge.call(_looked_up, call, unknown)
        for part in parts:
            part.refusal = part.refusal or failed.get(part.topic)
    outcomes = iter(await _put_in_line(call, parts))
    return [
        _answer(call, request_parts, list(islice(outcomes, len(request_parts))), request.acks != _NO_ACKS)
        for request, request_parts in zip(requests, parts_by_request, strict=True)
    ]


def _looked_up(call: Call, topics: Iterable[str]) -> dict[str, HeadraceError]:
    """Load topics that a shared store may have, those that the caller may publish to; why others may not be used."""
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    failed: dict[str, HeadraceError] = {}
    for topic in topics:
        try:
            call.principal.require("publish", topic)
            lookup.reader(topic)
        except HeadraceError as error:
            failed[topic] = error.with_traceback(None)
    return failed


async def _parts_of(call: Call, request: Any) -> list[_Part]:
    """What a request has for each partition."""
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    elements = sum(1 + len(topic.partition_data) for topic in request.topic_data)
    if elements <= LOOP_ELEMENTS_MAX and all(map(lookup.is_named, map(ref_of, request.topic_data))):
        return _parts(lookup, request)
    return await call.parts.bridge.call(_parts, lookup, request)


def _parts(lookup: TopicLookup, request: Any) -> list[_Part]:
    parts: list[_Part] = []
    for topic in request.topic_data:
        name, refusal, ref = "", _refusal(request), ref_of(topic)
        try:
            name = lookup.name(ref)
        except HeadraceError as error:
            refusal = error.with_traceback(None)
        parts += [_Part(ref, name, each.index, each.records, refusal) for each in topic.partition_data]
    return parts


def _refusal(request: Any) -> Exception | None:
    if request.acks not in _ACKS:
        return _BadAcks(f"acks is {request.acks}: it must be -1, 0 or 1")
    if request.transactional_id is not None:
        return _Transactional("transactions are not supported")
    return None


class _BadAcks(BadRecords):
    error = "invalid_required_acks"


class _Transactional(BadRecords):
    error = "invalid_txn_state"


async def _put_in_line(call: Call, parts: list[_Part]) -> list[Outcome]:
    """Decode records and put them in line; a few bytes may decompress to very many, which wait for room before.

    What decompresses to more than one batch may, goes in line part by part, each when the one before is written.
    """
    budget, owner = call.parts.envelope.decompressed, call.principal.name
    outcomes: list[Outcome] = []
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
            waiting = {each[0].done for each in published if not isinstance(each, Exception)}
            written = asyncio.gather(*waiting)
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
    if len(parts) <= LOOP_ELEMENTS_MAX and sum(len(part.records or b"") for part in parts) <= LOOP_BYTES_MAX:
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
        found.append(batch if isinstance(batch, Exception) else _header_refusal(call, part, batch) or batch)
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
            return error.with_traceback(None)


def _header_refusal(call: Call, part: _Part, batch: RecordBatch) -> Exception | None:
    """Why a batch is refused for what its head says: offsets, or a producer that the caller may not be; if so."""
    if batch.header.base_offset:
        return BadRecords(f"the base offset of the batch is {batch.header.base_offset}: a producer sends 0")
    if batch.header.producer_id == NO_PRODUCER:
        return None
    try:
        call.principal.require("publish", part.topic, producer=source_of(batch.header.producer_id))
    except HeadraceError as error:
        return error.with_traceback(None)
    return None


def _published(call: Call, parts: list[_Part], decoded: list[RecordBatch | Exception]) -> list[Outcome]:
    """Put the messages in line, those of a topic together."""
    loop = asyncio.get_running_loop()
    outcomes: list[Outcome] = []
    by_topic: dict[str, _Pending] = {}
    for asked, records in zip(parts, decoded, strict=True):
        if isinstance(records, Exception):
            outcomes.append(records)
            continue
        pending = by_topic.get(asked.topic)
        if pending is None:
            pending = by_topic[asked.topic] = _Pending(asked.topic, [], loop.create_future())
        header = records.header
        numbering = None if header.producer_id == NO_PRODUCER else BatchNumbers(header, asked.partition)
        part = Part(asked.partition, records.together, records.first, header.count, numbering)
        pending.parts.append(part)
        outcomes.append((pending, part))
    for topic, pending in by_topic.items():
        call.parts.bridge.publish_parts(topic, pending.parts, partial(_finish, call, pending), call.principal.name)
    return outcomes


def _finish(call: Call, pending: _Pending) -> None:
    """All parts have their outcome."""
    call.parts.written.put(pending.topic, pending.parts)
    for part in pending.parts:
        # Answers wait for those before them, and need no records for that.
        part.together = NO_MESSAGES
    if not pending.done.done():
        pending.done.set_result(None)


def _light(error: Exception) -> Exception:
    """An error, without its traceback if it was expected: the frames of that would hold the records."""
    return error.with_traceback(None) if isinstance(error, HeadraceError | BadRecords) else error


async def _answer(call: Call, parts: list[_Part], outcomes: list[Outcome], is_wanted: bool) -> dict[str, Any] | None:
    by_topic: dict[TopicRef, list[dict[str, Any]]] = {}
    written: dict[str, list[dict[str, Any]]] = {}
    failure: Exception | None = None
    async for part, outcome in in_turns(zip(parts, outcomes, strict=True)):
        answer: dict[str, Any] = {"index": part.partition, "error_code": ErrorCode.none, "base_offset": UNKNOWN_OFFSET}
        try:
            if isinstance(outcome, Exception):
                raise outcome
            answer["base_offset"] = await outcome[0].offset_of(call, outcome[1])
            written.setdefault(part.topic, []).append(answer)
        except Exception as error:
            # The outcome is among the locals of this frame, which its traceback would keep with all records.
            failure = error.with_traceback(None)
            answer |= {"error_code": code_of(error), "error_message": message_of(error)}
            if isinstance(error, InvalidMessage):
                answer["record_errors"] = [{"batch_index": error.row, "batch_index_error_message": str(error)[:1000]}]
        by_topic.setdefault(part.ref, []).append(answer)
    if not is_wanted:
        if failure is not None:
            raise ConnectionAbortedError(f"records without acknowledgement were refused: {message_of(failure)}")
        return None
    for topic, answers in written.items():
        await _add_of_the_log(call, topic, answers)
    return {
        "responses": [
            {"name": ref, "topic_id": ref, "partition_responses": answers} for ref, answers in by_topic.items()
        ]
    }


async def _add_of_the_log(call: Call, topic: str, answers: list[dict[str, Any]]) -> None:
    """Add where the partitions begin, and if the topic says so when the broker wrote the records."""
    try:
        reader = call.parts.bridge.broker.reader(topic)
        seen = reader.seen_offsets()
        starts = [] if seen is None else seen.start.tolist()
        for answer in answers:
            if answer["index"] < len(starts):
                answer["log_start_offset"] = starts[answer["index"]]
        positions = {each["index"]: each["base_offset"] for each in answers if each["base_offset"] != UNKNOWN_OFFSET}
        if reader.settings.timestamp_type == "broker" and positions:
            times = await call.parts.bridge.call(reader.times_of, positions)
            for answer in answers:
                answer["log_append_time"] = times.get(answer["index"], -_MILLISECOND_US) // _MILLISECOND_US
    except HeadraceError:
        # The records are written, whatever becomes of the topic.
        return

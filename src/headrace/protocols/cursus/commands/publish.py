"""PUBLISH and batches: records to messages of one partition, answered once they are durable.

Whatever a client wants to wait for, its answer means that the messages are on the device: acks of 0, 1 and all are the
same here, and what is not written is never answered with OK. A client that reads no answers, as some with acks of 0, is
not sent more than its connection takes.

The records of a request are a part of the commit (`broker.publish.parts`). A producer is idempotent if it says so, or
the topic was created so; a number of 0 deduplicates nothing.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from headrace.broker.publish.parts import UNKNOWN_OFFSET, Numbering, Part
from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import HeadraceError
from headrace.core.hashes.columns import partition_of
from headrace.core.limits import LOOP_BYTES_MAX
from headrace.edge.envelope.byte_budget import HeldBytes
from headrace.protocols.cursus.call import CursusAnswer, CursusCall, check_partition
from headrace.protocols.cursus.commands.kept import HASH_KEY, IDEMPOTENT, has, partitioner_of
from headrace.protocols.cursus.errors import CursusRefusal, Quoted, refusal_of
from headrace.protocols.cursus.messages.batch import (
    DECODED_RECORD_BYTES,
    CursusBatch,
    ReadRecords,
    read_header,
    read_records,
)
from headrace.protocols.cursus.messages.command import Command
from headrace.protocols.cursus.producer_numbers import NumbersOverlap, ProducerNumbers, source_of

BROKER_ERROR: Final = "broker_error"
# Errors that end a producer: it understands them in JSON only.
_TERMINAL: Final = frozenset({"stale_producer_epoch", "producer_fenced", "idempotency_gap"})
_NO_ACKS: Final = "0"
_ACKS: Final = frozenset({_NO_ACKS, "1", "-1", "all"})
_NUMBER_MAX: Final = 1 << 62
# How often records are cut where others of them have been written: each time the rest is smaller.
_ATTEMPTS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records for a partition, with the numbers that their producer gave them, if it is idempotent."""

    partition: int
    rows: pa.RecordBatch
    numbers: Numbering | None = None


async def publish_batch(call: CursusCall, frame: bytes | bytearray) -> CursusAnswer:
    """Write a batch; errors that end its producer are told in JSON, all others as text."""
    is_wanted = True
    try:
        header = read_header(frame)
        is_wanted = header.acks != _NO_ACKS
        answer = await _written_batch(call, header, frame)
    except CursusRefusal as refusal:
        if refusal.code not in _TERMINAL:
            raise
        answer = json.dumps({"status": "ERROR", "error": str(refusal).removeprefix("ERROR: ")})
    except HeadraceError as error:
        raise refusal_of(error.with_traceback(None), code=BROKER_ERROR) from None
    return answer if is_wanted or call.frames.can_write else []


async def _written_batch(call: CursusCall, header: CursusBatch, frame: bytes | bytearray) -> str:
    check_acks(header.acks)
    call.require("publish", header.topic)
    reader = await call.reader(header.topic)
    check_partition(reader, header.partition)
    if not header.count:
        raise CursusRefusal(BROKER_ERROR, reason=Quoted("empty batch messages"))
    await hold_back(call, len(frame))
    held = HeldBytes(call.parts.envelope.parsed, call.principal.name)
    try:
        if len(frame) <= LOOP_BYTES_MAX:
            records = read_records(header, frame)
        else:
            most = held.budget.share_max
            await held.take(min(header.count * DECODED_RECORD_BYTES + len(frame), most))
            records = await call.work(read_records, header, frame)
        numbers = _numbers_of(call, reader, header, records)
        offset = await _write_numbered(call, reader, header.partition, records.columns, numbers)
    finally:
        held.shrink()
    call.called_by(records.producer)
    call.principal.publishes(reader.name, source_of(records.producer) if numbers else "")
    return acknowledgement(records.producer, records.epoch, header.first, header.last, offset)


def _numbers_of(
    call: CursusCall, reader: TopicReader, header: CursusBatch, records: ReadRecords
) -> ProducerNumbers | None:
    if not (header.is_idempotent or has(reader.settings, IDEMPOTENT)) or not records.first:
        return None
    if not records.is_numbered:
        reason = "the records of an idempotent batch must be of one producer and epoch, with consecutive numbers"
        raise CursusRefusal("invalid_seq_num", reason=Quoted(reason))
    return numbered(call, reader, records.producer, records.epoch, header.partition, records.first, header.count)


def numbered(
    call: CursusCall, reader: TopicReader, producer: str, epoch: int, partition: int, first: int, count: int
) -> ProducerNumbers:
    """The numbers of records of an idempotent producer, who may be that and is not over."""
    if first + count > _NUMBER_MAX:
        raise CursusRefusal("invalid_seq_num", reason=Quoted(f"numbers are below {_NUMBER_MAX}"))
    call.require("publish", reader.name, producer=source_of(producer))
    call.parts.epochs.check(reader.topic_id, partition, producer, epoch)
    return ProducerNumbers(producer, epoch, partition, first, count)


async def publish_text(call: CursusCall, command: Command) -> CursusAnswer:
    """Write one message."""
    topic = command.required("topic")
    producer = command.required("producerId", "missing_producer_id")
    acks = command.get("acks") or "1"
    if not command.message:
        raise CursusRefusal("missing_message", command=command.name)
    check_acks(acks)
    call.require("publish", topic)
    reader = await call.reader(topic)
    key = command.get("key").encode()
    partition = chosen_partition(call, reader, command, key)
    number, epoch = command.number("seqNum", "invalid_seq_num", 0), command.number("epoch", default=0, least=-1 << 63)
    is_idempotent = command.flag("isIdempotent") or has(reader.settings, IDEMPOTENT)
    numbers = None
    if is_idempotent and number:
        numbers = numbered(call, reader, producer, epoch, partition, number, 1)
    await hold_back(call, command.size)
    rows = {"value": pa.array([command.message], pa.binary())}
    if key:
        rows["key"] = pa.array([key], pa.binary())
    offset = await _write_numbered(call, reader, partition, pa.RecordBatch.from_pydict(rows), numbers)
    call.called_by(producer)
    call.principal.publishes(reader.name, source_of(producer) if numbers else "")
    return "OK" if acks == _NO_ACKS else acknowledgement(producer, epoch, number, number, offset)


def check_acks(acks: str) -> None:
    """Raise for acks that do not exist."""
    if acks not in _ACKS:
        raise CursusRefusal("invalid_acks", value=acks[:100])


def chosen_partition(call: CursusCall, reader: TopicReader, command: Command, key: bytes) -> int:
    """The partition that the command names; else by the hash of the key, or in turns."""
    asked = command.number("partition", default=-1, least=-1)
    if asked >= 0:
        check_partition(reader, asked)
        return asked
    if key and partitioner_of(reader.settings) == HASH_KEY:
        return partition_of(key, reader.partitions)
    turn = call.parts.turns.get(reader.topic_id, 0)
    call.parts.turns[reader.topic_id] = turn + 1
    return turn % reader.partitions


def acknowledgement(producer: str, epoch: int, first: int, last: int, offset: int | None) -> str:
    """Records are durable; without an offset if they repeat what was written too long ago to be found."""
    told = {"status": "OK", "producer_epoch": epoch, "producer_id": producer, "seq_start": first, "seq_end": last}
    return json.dumps(told if offset is None else told | {"last_offset": offset})


async def hold_back(call: CursusCall, size: int) -> None:
    """Wait until the caller may publish more: clients take that as a slow server."""
    principal = call.principal
    rate = principal.limits.publish_bytes
    while (seconds := rate.seconds_until_free(principal.name)) > 0:
        principal.count_refusal("limits.publish_bytes_per_second")
        await asyncio.sleep(min(seconds, 1.0))
    rate.spend(principal.name, size)


async def _write_numbered(
    call: CursusCall, reader: TopicReader, partition: int, rows: pa.RecordBatch, numbers: ProducerNumbers | None
) -> int | None:
    """Write records; the offset of the last of them, or None if that is not known any more."""
    offset = await _write(call, reader, Outgoing(partition, rows, numbers))
    if numbers is not None:
        call.parts.epochs.put(reader.topic_id, numbers)
    return offset


async def _write(call: CursusCall, reader: TopicReader, left: Outgoing) -> int | None:
    for _ in range(_ATTEMPTS_MAX):
        try:
            part = await decide(call, reader.name, left)
        except NumbersOverlap as overlap:
            left = _after(left, overlap.last)
            continue
        if part.repeated is not None:
            return await _found(call, reader, part)
        return None if part.offset == UNKNOWN_OFFSET else part.offset + part.rows - 1
    raise CursusRefusal(BROKER_ERROR, True, reason=Quoted("others write the same numbers at the same time"))


async def decide(call: CursusCall, topic: str, records: Outgoing) -> Part:
    """Write records, and wait until they are durable; raises why they were not written.

    What is in line is written also if the client has left.
    """
    part = Part(records.partition, records.rows, 0, records.rows.num_rows, records.numbers)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    call.parts.bridge.publish_parts(topic, [part], partial(_settle, done), call.principal.name)
    await asyncio.wait((done,))
    if part.error is not None:
        raise part.error.with_traceback(None)
    return part


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _after(records: Outgoing, last: int) -> Outgoing:
    """The records after a number."""
    numbers = records.numbers
    assert isinstance(numbers, ProducerNumbers), "only records of producers overlap"
    written = last + 1 - numbers.first
    rest = replace(numbers, first=last + 1, count=numbers.count - written)
    return Outgoing(records.partition, records.rows.slice(written), rest)


async def _found(call: CursusCall, reader: TopicReader, part: Part) -> int | None:
    """The offset of the last of records that were written before."""
    assert part.numbering is not None and part.repeated is not None, "only numbered records repeat"
    async with call.parts.searches:
        last = part.repeated + part.rows - 1
        return await call.work(reader.offset_of, part.partition, part.numbering.source, last)

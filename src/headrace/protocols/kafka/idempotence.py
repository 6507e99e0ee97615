"""Idempotent produce: what a Kafka producer sends twice is written once, also across a crash of the server.

A producer has an id and an epoch, and numbers its records in each partition. Here it is a source of the topic, as any
other: producer id `kafka:ID`, the partition as its message group, and as seqno the epoch and the number. So the log
itself holds what was written, and after a crash a retry is known as a duplicate.

    seqno = epoch << 36 | number since the epoch began, counted on where Kafka's number wraps around

Kafka also wants gaps refused. The last number of a producer in a partition is remembered here, and read from the store
when it is not known. The batches of a topic are written one commit after another: everything that arrives during one is
in the next. So nothing is written behind a batch of its producer that failed. That would turn the retry of the failed
one into a duplicate, and lose it.

A retry is answered with the offset of what was written. The last batches of each producer are remembered. After a
restart, or if another server wrote them, they are looked for in the log, beside the writing.

Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.errors import InvalidInput
from headrace.core.hashes.columns import Int64s
from headrace.core.lists import numbers
from headrace.core.publish.receipts import DUPLICATE_BY_SOURCE, Receipts
from headrace.edge.bridge import Bridge
from headrace.protocols.kafka.pending_batches import UNKNOWN_OFFSET, Waiting, first_offset, joined
from headrace.protocols.kafka.records.header import BadRecords, BatchHeader

PRODUCERS_MAX: Final = 100_000
_EPOCH_BITS: Final = 36
# Kafka's numbers go from 0 to 2**31 - 1 and then begin again.
_WRAP: Final = 1 << 31
# A producer has at most five batches under way: the offsets of that many are remembered, for answers to retries.
_BATCHES: Final = 5
# How many searches of the log are done at a time: threads are for others too.
_SEARCHES: Final = 2
# What is written in one commit: batches, and their records.
BATCHES_MAX: Final = 2000
ROWS_MAX: Final = 100_000

Place = tuple[str, int, int]


class OutOfOrder(BadRecords):
    """Records before these were not written: the producer sends those first."""

    error = "out_of_order_sequence_number"


class OldEpoch(BadRecords):
    """The producer has begun a newer epoch."""

    error = "invalid_producer_epoch"


class AlreadyWritten(BadRecords):
    """All records were written before, and are no longer found; clients take it as success, without an offset."""

    error = "duplicate_sequence_number"


@dataclass(slots=True)
class _Progress:
    """The last seqno of a producer in a partition, and its last batches: first seqno, count, offset.

    unfound: the highest seqno that was looked for in the log in vain; those below are further back still.
    """

    is_known: bool = False
    last: int | None = None
    unfound: int = -1
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_BATCHES))


@dataclass(slots=True)
class _Numbered:
    """A batch that follows the last one of its producer. Nobody changes it; `frozen` would cost more than all else."""

    place: Place
    waiting: Waiting
    progress: _Progress
    first: int


def source_of(producer_id: int) -> str:
    """The producer id of the source that a Kafka producer is."""
    return f"kafka:{producer_id}"


def first_seqno(header: BatchHeader, last: int | None) -> int:
    """The seqno of the first record of a batch, if it may follow the last one, or repeats what was written."""
    epoch, number = header.producer_epoch, header.base_sequence
    last_epoch = -1 if last is None else last >> _EPOCH_BITS
    if last is None or epoch > last_epoch:
        if number != 0:
            raise OutOfOrder(f"the first record of producer {header.producer_id} has number {number}: it must be 0")
        return epoch << _EPOCH_BITS
    if epoch < last_epoch:
        raise OldEpoch(f"epoch {epoch} of producer {header.producer_id} is over: the present one is {last_epoch}")
    last_number = last & ((1 << _EPOCH_BITS) - 1)
    expected = last_number + 1
    # The number nearest to the expected one, since those of Kafka wrap around.
    turn = (number - expected) % _WRAP
    if turn == 0:
        return last + 1
    behind = _WRAP - turn
    if behind <= expected and behind >= header.count:
        return last + 1 - behind
    raise OutOfOrder(
        f"the first record of producer {header.producer_id} has number {number}: {expected % _WRAP} comes next"
    )


class Sequences:
    """The progress of all producers, and by topic the batches that wait for the commit under way."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._progress: OrderedDict[Place, _Progress] = OrderedDict()
        self._waiting: dict[str, list[Waiting]] = {}
        self._searches = asyncio.Semaphore(_SEARCHES)

    def publish(self, topic: str, waiting: Waiting) -> None:
        """Write a batch of an idempotent producer, once, with those that arrive meanwhile."""
        in_line = self._waiting.get(topic)
        if in_line is not None:
            in_line.append(waiting)
            return
        self._waiting[topic] = [waiting]
        self._bridge.start(self._write(topic))

    async def _write(self, topic: str) -> None:
        """Write what waits, until nothing more arrives."""
        while waiting := self._waiting[topic]:
            self._waiting[topic] = waiting[BATCHES_MAX:]
            try:
                await self._write_some(topic, waiting[:BATCHES_MAX])
            except Exception as error:
                for each in waiting[:BATCHES_MAX]:
                    each.settle(error)
            self._forget()
        del self._waiting[topic]

    async def _write_some(self, topic: str, waiting: Sequence[Waiting]) -> None:
        """Write batches in their order, in one commit."""
        while waiting:
            # A batch that repeats one of the same commit waits until that is written.
            later: list[Waiting] = []
            numbered: list[_Numbered] = []
            ahead: dict[Place, int] = {}
            rows = 0
            for number, each in enumerate(waiting):
                if rows + each.rows > ROWS_MAX and numbered:
                    later += waiting[number:]
                    break
                one = await self._numbered(topic, each, ahead)
                if one is None:
                    continue
                if one.first <= ahead.get(one.place, -1):
                    later.append(each)
                    continue
                numbered.append(one)
                ahead[one.place] = one.first + each.rows - 1
                rows += each.rows
            if numbered:
                # Stable: those of a producer stay in their order. Rows in the order of partitions are not sorted again.
                numbered.sort(key=lambda each: each.waiting.partition)
                await self._commit(topic, numbered)
            waiting = later

    async def _numbered(self, topic: str, waiting: Waiting, ahead: Mapping[Place, int]) -> _Numbered | None:
        """A batch with its seqno, if it is to be written; if not, what became of it is known.

        `ahead` has the last seqnos of those that are written before it, in the same commit.
        """
        header = waiting.records.header
        place = (topic, waiting.partition, header.producer_id)
        progress = self._progress.setdefault(place, _Progress())
        self._progress.move_to_end(place)
        try:
            was_known = progress.is_known
            if not was_known:
                await self._look_up(progress, place)
            try:
                first = first_seqno(header, ahead.get(place, progress.last))
            except BadRecords:
                if not was_known or place in ahead:
                    raise
                # Another server may have written for this producer, or an operator has reset it.
                await self._look_up(progress, place)
                first = first_seqno(header, progress.last)
            numbered = _Numbered(place, waiting, progress, first)
            if progress.last is None or first > progress.last:
                return numbered
            self._answer_again(numbered)
        except Exception as error:
            waiting.settle(error)
        return None

    async def _commit(self, topic: str, numbered: list[_Numbered]) -> None:
        """Write batches; if one of them is not valid, each by itself, and none behind it of the same producer."""
        try:
            receipts = await self._bridge.publish(topic, _with_seqnos(numbered))
        except InvalidInput as error:
            if len(numbered) == 1:
                _failed(numbered, error)
            else:
                for each in numbered:
                    await self._write_some(topic, [each.waiting])
            return
        except Exception as error:
            _failed(numbered, error)
            return
        if receipts.written == len(receipts):
            for each, offset in zip(numbered, receipts.offset[_begins(numbered)].tolist(), strict=True):
                each.waiting.settle(_written(each.progress, each.first, each.waiting.rows, offset))
            return
        for each, first in zip(numbered, _begins(numbered).tolist(), strict=True):
            outcome = _applied(each.progress, each.first, receipts.slice(first, first + each.waiting.rows))
            if outcome is None:
                self._answer_again(each)
            else:
                each.waiting.settle(outcome)

    def _answer_again(self, numbered: _Numbered) -> None:
        """Answer a batch that was written before with the offset that it has."""
        progress, first, rows = numbered.progress, numbered.first, numbered.waiting.rows
        for known_first, known_rows, offset in progress.batches:
            if (known_first, known_rows) == (first, rows):
                numbered.waiting.settle(offset)
                return
        # Not by the caller, which writes for all producers.
        self._bridge.start(self._search(numbered))

    async def _search(self, numbered: _Numbered) -> None:
        """Look for a batch that was written before in the log."""
        (topic, partition, producer_id), progress = numbered.place, numbered.progress
        source = source_of(producer_id), str(partition)
        offset: int | None = None
        try:
            async with self._searches:
                if numbered.first > progress.unfound:
                    reader = await self._bridge.reader(topic)
                    offset = await self._bridge.call(reader.offset_of, partition, source, numbered.first)
        except Exception as error:
            numbered.waiting.settle(error)
            return
        if offset is None:
            progress.unfound = max(progress.unfound, numbered.first)
            numbered.waiting.settle(AlreadyWritten("these records were written before, and are no longer found"))
        else:
            progress.batches.append((numbered.first, numbered.waiting.rows, offset))
            numbered.waiting.settle(offset)

    async def _look_up(self, progress: _Progress, place: Place) -> None:
        """Read from the store how far a producer has come."""
        topic, partition, producer_id = place
        last_seqno = self._bridge.broker.last_seqno
        progress.last = await self._bridge.call(last_seqno, topic, source_of(producer_id), str(partition))
        progress.is_known = True

    def _forget(self) -> None:
        """Forget those who have been still for longest; the store knows them."""
        while len(self._progress) > PRODUCERS_MAX:
            self._progress.popitem(last=False)


def _failed(numbered: Sequence[_Numbered], error: Exception) -> None:
    for each in numbered:
        # It may have been written all the same: the store says so next time.
        each.progress.is_known = False
        each.waiting.settle(error)


def _applied(progress: _Progress, first: int, receipts: Receipts) -> int | BadRecords | None:
    """What became of a batch that was written; None if it was written before, so that the log has its offset."""
    if receipts.conflicts:
        progress.is_known = False
        return OutOfOrder("other records were written with these sequence numbers")
    offset = first_offset(receipts, 0, len(receipts))
    if offset == UNKNOWN_OFFSET:
        progress.last = first + len(receipts) - 1
        # What repeats the payload of another message is not in the log itself.
        is_repeated = receipts.outcome[0] == DUPLICATE_BY_SOURCE
        return None if is_repeated else AlreadyWritten("messages with these payloads were written before")
    return _written(progress, first, len(receipts), offset)


def _written(progress: _Progress, first: int, count: int, offset: int) -> int:
    """The offset of a batch, which is remembered."""
    progress.last = first + count - 1
    progress.batches.append((first, count, offset))
    return offset


def _begins(numbered: Sequence[_Numbered]) -> Int64s:
    """At which row of all of them each batch begins."""
    rows = np.array([each.waiting.rows for each in numbered], np.int64)
    return np.cumsum(rows) - rows


def _with_seqnos(numbered: Sequence[_Numbered]) -> pa.RecordBatch:
    """The messages of batches with their sources: a producer's messages in a partition are one of them."""
    rows = np.array([each.waiting.rows for each in numbered], np.int64)
    firsts = np.array([each.first for each in numbered], np.int64)
    seqnos = np.arange(rows.sum()) + np.repeat(firsts - _begins(numbered), rows)
    columns = {
        "producer_id": _repeated([source_of(each.waiting.records.header.producer_id) for each in numbered], rows),
        "message_group_id": _repeated([str(each.waiting.partition) for each in numbered], rows),
        "seqno": numbers(pa.int64(), seqnos),
    }
    batch = joined([each.waiting for each in numbered])
    for name, column in columns.items():
        batch = batch.append_column(name, column)
    return batch


def _repeated(texts: Sequence[str], counts: Int64s) -> pa.Array:
    """Each text as many times as its count says."""
    coded = [text.encode() for text in texts]
    ends = np.cumsum(np.repeat([len(text) for text in coded], counts))
    bounds = np.concatenate([[0], ends]).astype(np.int32)
    data = b"".join([text * count for text, count in zip(coded, counts.tolist(), strict=True)])
    return pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(bounds), pa.py_buffer(data)])

"""Idempotent produce: what a Kafka producer sends twice is written once, also across a crash of the server.

A producer has an id and an epoch, and numbers its records in each partition. Here it is a source of the topic, as any
other: producer id `kafka:ID`, the partition as its message group, and as seqno the epoch and the number. So the log
itself holds what was written, and after a crash a retry is known as a duplicate.

    seqno = epoch << 36 | number since the epoch began, counted on where Kafka's number wraps around

Kafka also wants gaps refused. The last number of a producer in a partition is remembered here, and read from the store
when it is not known; batches of one producer and partition are written one after another, so that nothing is written
behind a batch that failed. That would turn the retry of the failed one into a duplicate, and lose it.

Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.publish.receipts import WRITTEN, Receipts
from headrace.edge.bridge import Bridge
from headrace.protocols.kafka.records.header import BadRecords, BatchHeader

PRODUCERS_MAX: Final = 100_000
_EPOCH_BITS: Final = 36
# Kafka's numbers go from 0 to 2**31 - 1 and then begin again.
_WRAP: Final = 1 << 31
# A producer has at most five batches under way: the offsets of that many are remembered, for answers to retries.
_BATCHES: Final = 5
UNKNOWN_OFFSET: Final = -1

Place = tuple[str, int, int]


class OutOfOrder(BadRecords):
    """Records before these were not written: the producer sends those first."""

    error = "out_of_order_sequence_number"


class OldEpoch(BadRecords):
    """The producer has begun a newer epoch."""

    error = "invalid_producer_epoch"


class AlreadyWritten(BadRecords):
    """All records were written before, at offsets that are no longer known; clients take it as success."""

    error = "duplicate_sequence_number"


@dataclass(slots=True)
class _Progress:
    """The last seqno of a producer in a partition, and its last batches: first seqno, count, offset."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_known: bool = False
    last: int | None = None
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_BATCHES))


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
    """The progress of all producers."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._progress: OrderedDict[Place, _Progress] = OrderedDict()

    async def publish(self, topic: str, partition: int, header: BatchHeader, batch: pa.RecordBatch) -> int:
        """Write a batch of an idempotent producer, once; the offset of its first record."""
        place = (topic, partition, header.producer_id)
        progress = self._progress.setdefault(place, _Progress())
        self._progress.move_to_end(place)
        self._forget()
        async with progress.lock:
            was_known = progress.is_known
            if not was_known:
                await self._look_up(progress, place)
            try:
                first = first_seqno(header, progress.last)
            except BadRecords:
                if not was_known:
                    raise
                # Another server may have written for this producer, or an operator has reset it.
                await self._look_up(progress, place)
                first = first_seqno(header, progress.last)
            if progress.last is not None and first <= progress.last:
                return _known_offset(progress, first, header.count)
            try:
                receipts = await self._bridge.publish(topic, _numbered(batch, header.producer_id, partition, first))
            except BaseException:
                # It may have been written all the same: the store says so next time.
                progress.is_known = False
                raise
            return _applied(progress, first, receipts)

    async def _look_up(self, progress: _Progress, place: Place) -> None:
        """Read from the store how far a producer has come."""
        topic, partition, producer_id = place
        last_seqno = self._bridge.broker.last_seqno
        progress.last = await self._bridge.call(last_seqno, topic, source_of(producer_id), str(partition))
        progress.is_known = True

    def _forget(self) -> None:
        """Forget those who have been still for longest; the store knows them."""
        while len(self._progress) > PRODUCERS_MAX:
            place, progress = next(iter(self._progress.items()))
            if progress.lock.locked():
                return
            del self._progress[place]


def _known_offset(progress: _Progress, first: int, count: int) -> int:
    for known_first, known_count, offset in progress.batches:
        if (known_first, known_count) == (first, count):
            return offset
    raise AlreadyWritten("these records were written before")


def _applied(progress: _Progress, first: int, receipts: Receipts) -> int:
    if receipts.conflicts:
        progress.is_known = False
        raise OutOfOrder("other records were written with these sequence numbers")
    progress.last = first + len(receipts) - 1
    written = np.flatnonzero(receipts.outcome == WRITTEN)
    if not len(written):
        raise AlreadyWritten("these records were written before")
    offset = int(receipts.offset[written[0]])
    progress.batches.append((first, len(receipts), offset))
    return offset


def _numbered(batch: pa.RecordBatch, producer_id: int, partition: int, first: int) -> pa.RecordBatch:
    rows = batch.num_rows
    columns = {
        "producer_id": pa.repeat(source_of(producer_id), rows),
        "message_group_id": pa.repeat(str(partition), rows),
        "seqno": pa.array(np.arange(first, first + rows)),
    }
    for name, column in columns.items():
        batch = batch.append_column(name, column)
    return batch

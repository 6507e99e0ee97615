"""Idempotent produce: what a Kafka producer sends twice is written once, also across a crash of the server.

A producer has an id and an epoch, and numbers its records in each partition. Here it is a source of the topic, as any
other: producer id `kafka:ID`, the partition as its message group, and as seqno the epoch and the number. So the log
itself holds what was written, and after a crash a retry is known as a duplicate.

    seqno = epoch << 36 | number since the epoch began, counted on where Kafka's number wraps around

Kafka also wants gaps refused: `BatchNumbers` says whether a batch continues its source, repeats it, or neither, and the
commit asks it where the last seqno is known (`broker.publish.parts`). A repeated batch is answered with the offset that
it has. The last batches of each producer are remembered. After a restart, or if another server wrote them, they are
looked for in the log, beside the writing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headrace.broker.publish.parts import UNKNOWN_OFFSET, Part
from headrace.core.publish.sources import Source
from headrace.edge.bridge import Bridge
from headrace.protocols.kafka.records.header import BadRecords, BatchHeader

PRODUCERS_MAX: Final = 100_000
_EPOCH_BITS: Final = 36
# Kafka's numbers go from 0 to 2**31 - 1 and then begin again.
_WRAP: Final = 1 << 31
# A producer has at most five batches under way: the offsets of that many are remembered, for answers to retries.
_BATCHES: Final = 5
# How many searches of the log are done at a time: threads are for others too.
_SEARCHES: Final = 2


class OutOfOrder(BadRecords):
    """Records before these were not written: the producer sends those first."""

    error = "out_of_order_sequence_number"


class OldEpoch(BadRecords):
    """The producer has begun a newer epoch."""

    error = "invalid_producer_epoch"


class AlreadyWritten(BadRecords):
    """All records were written before, and are no longer found; clients take it as success, without an offset."""

    error = "duplicate_sequence_number"


@dataclass(slots=True, eq=False)
class BatchNumbers:
    """The numbers of the records of a batch. Nobody changes it; `frozen` would take most of the time to create one."""

    header: BatchHeader
    partition: int

    @property
    def source(self) -> Source:
        """The producer in this partition."""
        return source_of(self.header.producer_id), str(self.partition)

    def first_seqno(self, last: int | None) -> int:
        """The seqno of the first record after this one, or of what it repeats."""
        return first_seqno(self.header, last)


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


@dataclass(slots=True)
class _Written:
    """The last batches of a producer in a partition: first seqno, count, offset.

    unfound: the highest seqno that was looked for in the log in vain; those below are further back still.
    """

    unfound: int = -1
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_BATCHES))


class WrittenBatches:
    """What the producers of a server wrote last, for answers to retries. Belongs to the event loop."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._written: OrderedDict[tuple[str, Source], _Written] = OrderedDict()
        self._searches = asyncio.Semaphore(_SEARCHES)

    def put(self, topic: str, parts: Iterable[Part]) -> None:
        """Remember those of these parts that were written."""
        for part in parts:
            if part.numbering is not None and part.offset != UNKNOWN_OFFSET:
                self._of(topic, part.numbering.source).batches.append((part.seqno, part.rows, part.offset))
        while len(self._written) > PRODUCERS_MAX:
            # Those that were still for longest: the log knows them.
            self._written.popitem(last=False)

    async def offset_of(self, topic: str, part: Part, seqno: int) -> int:
        """The offset of what a part repeats."""
        assert part.numbering is not None, "only numbered parts repeat"
        source = part.numbering.source
        written = self._of(topic, source)
        for known_seqno, rows, offset in written.batches:
            if (known_seqno, rows) == (seqno, part.rows):
                return offset
        async with self._searches:
            found: int | None = None
            if seqno > written.unfound:
                reader = await self._bridge.reader(topic)
                found = await self._bridge.call(reader.offset_of, part.partition, source, seqno)
        if found is None:
            written.unfound = max(written.unfound, seqno)
            raise AlreadyWritten("these records were written before, and are no longer found")
        written.batches.append((seqno, part.rows, found))
        return found

    def _of(self, topic: str, source: Source) -> _Written:
        written = self._written.setdefault((topic, source), _Written())
        self._written.move_to_end((topic, source))
        return written

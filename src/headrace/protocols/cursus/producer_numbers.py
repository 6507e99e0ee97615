"""Idempotent producers: what is sent twice is written once, also across a crash of the server.

A producer numbers its records in each partition from 1 on, without gaps, anew in each epoch. Here it is a source of the
topic as any other: the producer id `cursus:NAME`, the partition and the epoch as its message group, the number as
seqno. So the log itself holds what was written. Whether records continue the numbers, repeat them or leave a gap is
decided where the last seqno is known (`broker.publish.parts`).

Clients may send records again together with newer ones: `NumbersOverlap` says how many were written, and the rest is
written by another attempt.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from headrace.core.publish.sources import Source
from headrace.protocols.cursus.errors import CursusRefusal

PRODUCERS_KEPT_MAX: Final = 100_000
_PREFIX: Final = "cursus:"
_TEXT_BYTES_MAX: Final = 0xFFFF


class NumbersOverlap(Exception):
    """Some of the records were written, up to this number."""

    def __init__(self, last: int) -> None:
        super().__init__(last)
        self.last = last


@dataclass(frozen=True, slots=True)
class ProducerNumbers:
    """The numbers of some records of a producer."""

    producer: str
    epoch: int
    partition: int
    first: int
    count: int

    @property
    def source(self) -> Source:
        """The producer in this partition and epoch."""
        return source_of(self.producer), f"{self.partition}/{self.epoch}"

    def first_seqno(self, last: int | None) -> int:
        """The seqno of the first record; raises if there is a gap before it, or some were written and some not."""
        expected = 1 if last is None else last + 1
        if self.first > expected:
            raise CursusRefusal("idempotency_gap", producer=self.producer, expected=expected, received=self.first)
        end = self.first + self.count
        if self.first < expected < end:
            raise NumbersOverlap(expected - 1)
        return self.first


def source_of(producer: str) -> str:
    """The producer id of a producer that this protocol numbers."""
    return _PREFIX + producer


def named_producer(producer_id: str | None, group: str | None) -> tuple[bytes, int]:
    """How a client is told the producer of a message, and its epoch."""
    if not producer_id:
        return b"", 0
    epoch = 0
    if producer_id.startswith(_PREFIX):
        producer_id = producer_id.removeprefix(_PREFIX)
        text = (group or "").rpartition("/")[2]
        digits = text.removeprefix("-")
        epoch = int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else 0
    name = producer_id.encode()
    return (name if len(name) <= _TEXT_BYTES_MAX else b""), epoch


class ProducerEpochs:
    """The newest epoch of each producer that this server has heard; older ones are refused. Belongs to the event loop.

    What is forgotten, also by a restart, loses and doubles nothing: each epoch has numbers of its own.
    """

    def __init__(self) -> None:
        self._epochs: OrderedDict[tuple[int, int, str], int] = OrderedDict()

    def check(self, topic_id: int, partition: int, producer: str, epoch: int) -> None:
        """Raise for an epoch that is over."""
        present = self._epochs.get((topic_id, partition, producer), epoch)
        if epoch < present:
            raise CursusRefusal("stale_producer_epoch", producer=producer, current=present, received=epoch)

    def put(self, topic_id: int, numbers: ProducerNumbers) -> None:
        """A producer has written in its epoch."""
        key = topic_id, numbers.partition, numbers.producer
        self._epochs[key] = max(numbers.epoch, self._epochs.get(key, numbers.epoch))
        self._epochs.move_to_end(key)
        if len(self._epochs) > PRODUCERS_KEPT_MAX:
            self._epochs.popitem(last=False)

"""Receipts: what became of each message of a publish, in the order sent."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.hashes.columns import Int64s
from headrace.core.lists import binaries, masked, numbers
from headrace.core.publish.routing import NOWHERE
from headrace.core.publish.sources import Int32s

WRITTEN: Final = 0
DUPLICATE_BY_SOURCE: Final = 1
DUPLICATE_BY_PAYLOAD: Final = 2
DUPLICATE_COMMIT: Final = 3
# Not written either: another message was written with its seqno.
CONFLICT: Final = 4

RECEIPT_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("status", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Receipts:
    """The outcome of each message in the order sent; partition and offset are NOWHERE for what was not written."""

    partition: Int32s
    offset: Int64s
    outcome: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.outcome)

    @property
    def written(self) -> int:
        """How many messages were written."""
        return int(np.count_nonzero(self.outcome == WRITTEN))

    @property
    def conflicts(self) -> int:
        """How many messages differ from the one written with their seqno."""
        return int(np.count_nonzero(self.outcome == CONFLICT))

    def slice(self, start: int, stop: int) -> Receipts:
        """The receipts of some consecutive messages."""
        return Receipts(self.partition[start:stop], self.offset[start:stop], self.outcome[start:stop])

    def to_arrow(self) -> pa.RecordBatch:
        """As Arrow, with nulls for the partition and offset of what was not written."""
        dropped = self.outcome != WRITTEN
        columns = [
            masked(pa.int32(), self.partition, dropped),
            masked(pa.int64(), self.offset, dropped),
            _statuses().take(numbers(pa.uint8(), self.outcome)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RECEIPT_SCHEMA)


Status = Literal["written", "duplicate", "conflict"]
# What a receipt says, by outcome.
STATUSES: Final[Sequence[Status]] = ("written", "duplicate", "duplicate", "duplicate", "conflict")


@functools.cache
def _statuses() -> pa.Array:
    return binaries([status.encode() for status in STATUSES], pa.string())


def all_duplicates(rows: int, outcome: int) -> Receipts:
    """Receipts for messages of which none was written."""
    return Receipts(
        np.full(rows, NOWHERE, np.int32), np.full(rows, NOWHERE, np.int64), np.full(rows, outcome, np.uint8)
    )


NO_RECEIPTS: Final = all_duplicates(0, WRITTEN)


def join_receipts(parts: Sequence[Receipts]) -> Receipts:
    """Receipts one after another."""
    return Receipts(
        np.concatenate([part.partition for part in parts]),
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.outcome for part in parts]),
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """How many messages had which outcome: what is kept of a commit whose receipts may be larger than memory."""

    counts: Int64s

    @classmethod
    def of(cls, outcome: npt.NDArray[np.uint8]) -> Totals:
        """The totals of some outcomes."""
        return cls(np.bincount(outcome, minlength=CONFLICT + 1))

    @classmethod
    def all(cls, messages: int, outcome: int) -> Totals:
        """The totals of messages that all have one outcome."""
        counts = np.zeros(CONFLICT + 1, np.int64)
        counts[outcome] = messages
        return cls(counts)

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.counts + other.counts)

    @property
    def written(self) -> int:
        """How many messages were written."""
        return int(self.counts[WRITTEN])

    @property
    def dropped(self) -> int:
        """How many messages were not written."""
        return int(self.counts.sum()) - self.written


NO_TOTALS: Final = Totals.all(0, WRITTEN)

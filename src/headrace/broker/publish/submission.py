"""Submissions: what a publisher wants to write, and the outcome; and who is told, if no thread waits for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from headrace.broker.publish.combiner import Waiter
from headrace.broker.publish.parts import Part, neighbours
from headrace.broker.publish.staged_rows import StagedRows
from headrace.core.errors import HeadraceError, InvalidInput, again
from headrace.core.messages import STORED_SCHEMA
from headrace.core.publish.receipts import NO_RECEIPTS, NO_TOTALS, WRITTEN, Receipts, Totals
from headrace.core.publish.state import CommitKey

# Memory overhead of a single value while it waits.
VALUE_OVERHEAD_BYTES: Final = 256

_SMALL_BYTES: Final = 4096
_VALUES: Final = pa.schema([STORED_SCHEMA.field("value")])


@dataclass(frozen=True, slots=True)
class Fence:
    """Who publishes: the producer that was opened with an epoch for a source. A newer one fences it."""

    source: tuple[str, str]
    epoch: int


class OutcomeSink(Protocol):
    """Where the outcomes of submissions without a thread go."""

    def complete(self, done: Sequence[Submission]) -> None:
        """These are decided: called once per commit, in any thread; must not block. Some may be told twice."""


@dataclass(slots=True, eq=False)
class Lane:
    """What one stream publishes, in order: once a submission failed for more than its content, so do all behind it.

    Otherwise the retry of the failed one would count as a duplicate of what was written behind it, and be lost.
    """

    broken: Exception | None = None
    # The numbers of the last submission, and of the one that broke it.
    last: int = 0
    broken_at: int = 0


@dataclass(slots=True, eq=False)
class Submission(Waiter):
    """What one publisher wants to write, and the outcome.

    Its rows are `batches`, or one message with nothing but a value, or parts that are answered one by one, or staged
    ones, which were checked when they were staged and are answered with their totals. An account is who is charged for
    space; a program that has the broker in it is not.
    """

    batches: Sequence[pa.RecordBatch] = ()
    key: CommitKey | None = None
    staged: StagedRows | None = None
    fence: Fence | None = None
    parts: Sequence[Part] = ()
    value: bytes | None = None
    account: str = ""
    lane: Lane | None = None
    sink: OutcomeSink | None = None
    rows: int = 0
    bytes: int = 0
    receipts: Receipts | None = None
    totals: Totals = NO_TOTALS
    error: Exception | None = None
    # When its publisher may have the outcome, by the monotonic clock, if it wrote faster than its partitions allow.
    answer_at: float = 0.0
    # Whether it counts in the size of the queue; its place in the line and its lane; when it came.
    is_counted: bool = False
    turn: int = 0
    number: int = 0
    since: float = 0.0

    def __post_init__(self) -> None:
        self.has_no_thread = self.sink is not None
        if self.value is not None:
            self.rows, self.bytes = 1, len(self.value) + VALUE_OVERHEAD_BYTES
        elif self.staged is not None:
            self.rows, self.bytes = self.staged.rows, self.staged.bytes
        for batch in neighbours(self.parts) if self.parts else self.batches:
            self.rows += batch.num_rows
            self.bytes += _size_of(batch)

    @property
    def outcome(self) -> Receipts | Exception:
        """The receipts, or the error."""
        if self.error is not None:
            return self.error
        assert self.receipts is not None, "the submission was decided"
        return self.receipts

    @property
    def delay_seconds(self) -> float:
        """How long its publisher is still to wait for the outcome."""
        return max(0.0, self.answer_at - time.monotonic()) if self.answer_at else 0.0

    @property
    def is_decided(self) -> bool:
        """Whether it has an outcome."""
        return self.receipts is not None or self.error is not None

    def is_refused(self) -> bool:
        """Whether it has an error; what is behind a failure in its lane gets the same."""
        lane = self.lane
        if self.error is None and lane is not None and lane.broken is not None and self.number > lane.broken_at:
            self.error = own(lane.broken)
        return self.error is not None

    def answer(self, receipts: Receipts) -> None:
        """It was committed, unless it was refused."""
        if self.staged is None:
            self.receipts = receipts
        else:
            self.total(Totals.of(receipts.outcome))

    def total(self, totals: Totals) -> None:
        """It was committed, and has no receipts."""
        self.receipts, self.totals = NO_RECEIPTS, totals

    def written_partitions(self) -> set[int]:
        """The partitions that it wrote to."""
        if self.parts:
            return {part.partition for part in self.parts if part.error is None and part.repeated is None}
        if self.receipts is None:
            return set()
        return set(self.receipts.partition[self.receipts.outcome == WRITTEN].tolist())

    def refuse(self, error: Exception) -> None:
        """Give it an error; unless its content is to blame, that ends its lane."""
        self.error = error
        lane = self.lane
        if lane is None or isinstance(error, InvalidInput):
            return
        if lane.broken is None or self.number < lane.broken_at:
            lane.broken, lane.broken_at = error, self.number


def own(error: Exception) -> Exception:
    """An error that several get, for one of them."""
    return again(error) if isinstance(error, HeadraceError) else error


def batches_of(submissions: Sequence[Submission]) -> list[pa.RecordBatch]:
    """The rows of submissions; single values that follow one another are in one batch."""
    batches: list[pa.RecordBatch] = []
    values: list[bytes] = []
    for each in submissions:
        if each.value is not None:
            values.append(each.value)
            continue
        if values:
            batches.append(_batch_of(values))
            values = []
        batches += each.batches
    if values:
        batches.append(_batch_of(values))
    return batches


def _batch_of(values: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=_VALUES)


def _size_of(batch: pa.RecordBatch) -> int:
    """The bytes of a batch; for a small one those of its buffers, which may be more, but are much cheaper to get."""
    size: int = batch.get_total_buffer_size()
    return size if size <= _SMALL_BYTES else batch.nbytes

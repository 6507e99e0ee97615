"""Planning: what a publish will write, decided before anything is written.

    plan(canonical batch, state, settings, now) -> Commit
    state.apply(commit)          after the commit is on the device, and again on recovery

`plan` changes nothing, so a commit that cannot be persisted leaves no trace. Its steps are those of the design:
duplicates by source, duplicates by payload, partitions, a stable sort by partition, offsets. All are done on whole
columns; `accept` in `messages` has checked the rows before.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import SeqnoJump
from headrace.core.hashing import Int64s
from headrace.core.limits import MICROSECONDS, SEQNO_JUMP_MAX, WRITERS_MAX
from headrace.core.messages import NO_MESSAGES, STORED_SCHEMA
from headrace.core.publish.conflicts import conflicting, digests_of
from headrace.core.publish.payload_window import (
    NO_PAYLOADS,
    Bools,
    Payloads,
    PayloadWindow,
    payloads_of,
    present_of,
    repeats_within,
)
from headrace.core.publish.routing import NOWHERE, KeyRows, choose_partitions
from headrace.core.publish.sources import (
    NO_SOURCE,
    NO_UPDATES,
    NOTHING_WRITTEN,
    Int32s,
    RowSources,
    Source,
    SourceTable,
    SourceUpdates,
    first_jump,
    row_sources,
    updates_of,
)
from headrace.core.settings import TopicSettings

WRITTEN: Final = 0
DUPLICATE_BY_SOURCE: Final = 1
DUPLICATE_BY_PAYLOAD: Final = 2
DUPLICATE_COMMIT: Final = 3
# Not written either: another message was written with its seqno.
CONFLICT: Final = 4

FINGERPRINT_BITS: Final = 32
# Writers' names have no control characters.
_FINGERPRINT_MARK: Final = "\x1f"

RECEIPT_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("status", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class CommitKey:
    """Makes a whole commit idempotent: a number at or below the last one of its writer publishes nothing.

    fingerprint: 32 bits that say what the commit is. A known number with another fingerprint is a conflict, and so is
        a number below the last one; without a fingerprint both count as repeated.
    """

    writer: str
    number: int
    fingerprint: int | None = None

    def conflicts_with(self, last: CommitKey) -> bool:
        """Whether the writer's last commit shows that this one is of somebody else."""
        if self.fingerprint is None or self.number > last.number:
            return False
        return self.number < last.number or last.fingerprint not in (None, self.fingerprint)

    def recorded(self) -> tuple[CommitKey, ...]:
        """The keys that a commit records: those with a fingerprint are two, so that formats stay as they are.

        The second has a name that no writer can have. Its number is that of the commit, then the fingerprint, so it
        rises with the commits as every number of a writer does.
        """
        if self.fingerprint is None:
            return (self,)
        number = self.number << FINGERPRINT_BITS | self.fingerprint
        return CommitKey(self.writer, self.number), CommitKey(self.writer + _FINGERPRINT_MARK, number)


@dataclass(frozen=True, slots=True)
class Directory:
    """Where each partition's rows stand in a sorted batch; partitions ascend."""

    partition: Int32s
    first_offset: Int64s
    rows: Int64s
    first_row: Int64s = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first_row", np.cumsum(self.rows) - self.rows)


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
            pa.array(self.partition, mask=dropped),
            pa.array(self.offset, mask=dropped),
            _statuses().take(pa.array(self.outcome)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RECEIPT_SCHEMA)


Status = Literal["written", "duplicate", "conflict"]
# What a receipt says, by outcome.
STATUSES: Final[Sequence[Status]] = ("written", "duplicate", "duplicate", "duplicate", "conflict")


@functools.cache
def _statuses() -> pa.Array:
    return pa.array(STATUSES, pa.string())


def all_duplicates(rows: int, outcome: int) -> Receipts:
    """Receipts that say that nothing of it was written."""
    return Receipts(
        np.full(rows, NOWHERE, np.int32), np.full(rows, NOWHERE, np.int64), np.full(rows, outcome, np.uint8)
    )


def join_receipts(parts: Sequence[Receipts]) -> Receipts:
    """Receipts one after another."""
    return Receipts(
        np.concatenate([part.partition for part in parts]),
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.outcome for part in parts]),
    )


@dataclass(frozen=True, slots=True)
class Commit:
    """One frame to be written: the stored rows sorted by partition, and everything that follows from them.

    `continues` says that the next frame belongs to the same commit: the two become visible together.
    """

    number: int
    time_us: int
    rows: pa.RecordBatch
    directory: Directory
    round_robin: int
    keys: tuple[CommitKey, ...]
    sources: SourceUpdates
    payloads: Payloads
    continues: bool = False
    # Sources whose highest seqno is forgotten.
    resets: tuple[Source, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to persist."""
        return self.rows.num_rows == 0 and not self.keys and not self.resets

    def bare(self) -> Commit:
        """The same without its rows, which nobody needs once they are written."""
        return replace(self, rows=NO_MESSAGES)


@dataclass(slots=True)
class TopicState:
    """All that planning knows of a topic. `apply` is the only place where it changes by a commit."""

    end_offsets: Int64s
    next_number: int = 0
    last_time_us: int = 0
    round_robin: int = 0
    sources: SourceTable = field(default_factory=SourceTable)
    writers: dict[str, int] = field(default_factory=dict)
    window: PayloadWindow = field(default_factory=PayloadWindow)

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return len(self.end_offsets)

    def apply(self, commit: Commit) -> None:
        """Take a persisted commit in."""
        directory = commit.directory
        self.end_offsets[directory.partition] = directory.first_offset + directory.rows
        self.last_time_us = commit.time_us
        self.round_robin = commit.round_robin
        for source in commit.resets:
            self.sources.reset(source)
        if commit.sources is not NO_UPDATES:
            self.sources.apply(commit.sources, commit.time_us)
        if commit.payloads is not NO_PAYLOADS:
            self.window.add(commit.payloads)
        for key in commit.keys:
            # Taken out and put in again, so that the dictionary's order is that of last use.
            self.writers[key.writer] = max(key.number, self.writers.pop(key.writer, key.number))
            if len(self.writers) > WRITERS_MAX:
                del self.writers[next(iter(self.writers))]
        # Last: it says that all of the commit was taken in.
        self.next_number = commit.number + 1

    def is_repeated(self, key: CommitKey) -> bool:
        """Whether a commit with this key, or a later one of its writer, was published before."""
        return key.number <= self.writers.get(key.writer, -1)

    def last_key(self, writer: str) -> CommitKey | None:
        """The key of a writer's last commit, with its fingerprint if it had one."""
        number = self.writers.get(writer)
        if number is None:
            return None
        of, fingerprint = divmod(self.writers.get(writer + _FINGERPRINT_MARK, -1), 1 << FINGERPRINT_BITS)
        return CommitKey(writer, number, fingerprint if of == number else None)

    def add_partitions(self, partitions: int) -> None:
        """Grow to so many partitions; the new ones are empty."""
        self.end_offsets = np.concatenate([self.end_offsets, np.zeros(partitions - self.partitions, np.int64)])

    def copy(self) -> TopicState:
        """An independent state, to plan several frames of one commit on."""
        return TopicState(
            self.end_offsets.copy(),
            self.next_number,
            self.last_time_us,
            self.round_robin,
            self.sources.copy(),
            self.writers.copy(),
            self.window.copy(),
        )


def plan(
    batch: pa.RecordBatch,
    state: TopicState,
    settings: TopicSettings,
    now_us: int,
    keys: tuple[CommitKey, ...] = (),
    other_windows: Sequence[PayloadWindow] = (),
) -> tuple[Commit, Receipts]:
    """Decide what of a canonical batch is written, where, and what each message's receipt says."""
    # Strictly rising, so that a time belongs to one commit and orders messages across partitions.
    time_us = max(now_us, state.last_time_us + 1)
    outcome = np.zeros(batch.num_rows, np.uint8)
    sources = row_sources(batch) if "producer_id" in batch.schema.names else None
    seqno = _seqnos(batch) if sources is not None else _NO_SEQNOS
    if sources is not None and settings.deduplication != "off":
        repeated = np.flatnonzero(_repeated_seqnos(sources, seqno, state.sources, time_us))
        if len(repeated):
            outcome[repeated] = DUPLICATE_BY_SOURCE
            outcome[conflicting(batch, sources, seqno, repeated, state.sources, time_us)] = CONFLICT
    payloads = NO_PAYLOADS
    if settings.deduplication == "payload":
        present_us = present_of(time_us, now_us)
        after_us = present_us - settings.deduplication_window_seconds * MICROSECONDS
        payloads = _new_payloads(batch, outcome, [state.window, *other_windows], present_us, after_us)
    kept = np.flatnonzero(outcome == WRITTEN) if outcome.any() else None
    if kept is not None:
        batch = batch.take(pa.array(kept))
        if sources is not None:
            sources, seqno = RowSources(sources.code[kept], sources.sources), seqno[kept]
    partition, round_robin, keyed = choose_partitions(batch, seqno, sources, state, time_us)
    order, directory = _assign_offsets(partition, state.end_offsets)
    receipts = _receipts(outcome, kept, partition, order, directory)
    rows = stored_rows(batch, order)
    updates = NO_UPDATES
    if sources is not None:
        in_order = slice(None) if order is None else order
        placed = RowSources(sources.code[in_order], sources.sources)
        digests = functools.partial(digests_of, rows)
        updates = updates_of(placed, seqno[in_order], partition[in_order], ~keyed[in_order], digests)
    commit = Commit(state.next_number, time_us, rows, directory, round_robin, keys, updates, payloads)
    return commit, receipts


class SeqnoWatch:
    """Looks for seqnos that jump, over all that is to be written in one commit, request by request."""

    def __init__(self, table: SourceTable, now_us: int) -> None:
        self._table = table
        self._now_us = now_us
        self._accepted: dict[Source, int] = {}

    def check(self, batches: Sequence[pa.RecordBatch]) -> SeqnoJump | None:
        """What is wrong with the first jump of a request's canonical batches; without one they count for the next."""
        accepted: dict[Source, int] = {}
        start = 0
        for batch in batches:
            if "seqno" in batch.schema.names and (sources := row_sources(batch)) is not None:
                seqno = _seqnos(batch)
                highest, _ = self._table.lookup(sources.sources, self._now_us)
                for place, source in enumerate(sources.sources):
                    known = accepted.get(source, self._accepted.get(source, NOTHING_WRITTEN))
                    highest[place] = max(int(highest[place]), known)
                if (jump := first_jump(sources, seqno, highest)) is not None:
                    return _jump_error(sources, seqno, *jump, start)
                np.maximum.at(highest, sources.code[sources.code != NO_SOURCE], seqno[sources.code != NO_SOURCE])
                accepted |= dict(zip(sources.sources, highest.tolist(), strict=True))
            start += batch.num_rows
        self._accepted |= accepted
        return None


def may_jump(batch: pa.RecordBatch) -> bool:
    """Whether a batch has a seqno that could be a jump at all: small ones cannot, and need no closer look."""
    if "seqno" not in batch.schema.names:
        return False
    highest: int | None = pc.max(batch.column("seqno")).as_py()
    return highest is not None and highest > SEQNO_JUMP_MAX


def _jump_error(sources: RowSources, seqno: Int64s, row: int, before: int, start: int) -> SeqnoJump:
    producer_id, group_id = sources.sources[int(sources.code[row])]
    source = repr(producer_id) if not group_id else f"{producer_id!r} with message group {group_id!r}"
    rule = (
        f"it is more than {SEQNO_JUMP_MAX} above {before}, the one before it of producer {source}, which would make "
        "all seqnos between them duplicates; reset the source first if it is meant"
    )
    return SeqnoJump("seqno", str(int(seqno[row])), rule, start + row)


def plan_reset(state: TopicState, sources: Sequence[Source], now_us: int) -> Commit:
    """The commit that forgets the highest seqnos of some sources: a record in the log, as what it forgets is."""
    time_us = max(now_us, state.last_time_us + 1)
    nothing = Directory(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))
    number, round_robin = state.next_number, state.round_robin
    return Commit(
        number, time_us, NO_MESSAGES, nothing, round_robin, (), NO_UPDATES, NO_PAYLOADS, resets=tuple(sources)
    )


def replay(
    number: int,
    time_us: int,
    rows: pa.RecordBatch,
    directory: Directory,
    round_robin: int,
    keys: tuple[CommitKey, ...],
    remember_payloads: bool,
    resets: tuple[Source, ...] = (),
) -> Commit:
    """The commit that a stored frame came from, so that recovery applies what live traffic applied."""
    sources = row_sources(rows)
    updates = NO_UPDATES
    if sources is not None:
        partition = np.repeat(directory.partition, directory.rows)
        digests = functools.partial(digests_of, rows)
        updates = updates_of(sources, _seqnos(rows), partition, ~KeyRows.of(rows).keyed, digests)
    payloads = payloads_of(rows.column("value"), time_us) if remember_payloads else NO_PAYLOADS
    return Commit(number, time_us, rows, directory, round_robin, keys, updates, payloads, resets=resets)


def stored_rows(batch: pa.RecordBatch, order: Int64s | None) -> pa.RecordBatch:
    """The columns that are stored and not all null, in the given order."""
    columns = [name for name in batch.schema.names if _is_stored(batch, name)]
    rows = batch.select(columns) if len(columns) < batch.num_columns else batch
    return rows if order is None else rows.take(pa.array(order))


def _is_stored(batch: pa.RecordBatch, name: str) -> bool:
    return name == "value" or (name in _STORED_NAMES and batch.column(name).null_count < batch.num_rows)


_NO_SEQNOS: Final = np.zeros(0, np.int64)
_ONE_ROW: Final = np.ones(1, np.int64)
_STORED_NAMES: Final = frozenset(STORED_SCHEMA.names)


def _seqnos(batch: pa.RecordBatch) -> Int64s:
    if "seqno" not in batch.schema.names:
        return np.full(batch.num_rows, NOTHING_WRITTEN, np.int64)
    return np.asarray(pc.fill_null(batch.column("seqno"), NOTHING_WRITTEN))


def _repeated_seqnos(rows: RowSources, seqno: Int64s, table: SourceTable, now_us: int) -> Bools:
    """Rows whose seqno is not above all that their source wrote before, in the log or earlier in this batch."""
    highest, _ = table.lookup(rows.sources, now_us)
    numbered = np.flatnonzero((rows.code != NO_SOURCE) & (seqno != NOTHING_WRITTEN))
    code, number = rows.code[numbered], seqno[numbered]
    repeated = number <= highest[code]
    in_order = bool(np.all(code == code[:1])) and bool(np.all(number[1:] > number[:-1]))
    if not in_order:
        repeated |= _not_rising(code, number)
    result = np.zeros(len(seqno), bool)
    result[numbered] = repeated
    return result


def _not_rising(code: Int64s, number: Int64s) -> Bools:
    """Rows that are at or below an earlier row of the same source.

    Seqnos become ranks, so that source and rank fit one integer; sorted by source, a running maximum over that
    integer starts anew with each source.
    """
    _, rank = np.unique(number, return_inverse=True)
    order = np.argsort(code, kind="stable")
    combined = (code * (len(code) + 1) + rank)[order]
    rising = np.ones(len(code), bool)
    rising[1:] = combined[1:] > np.maximum.accumulate(combined)[:-1]
    result = np.empty(len(code), bool)
    result[order] = ~rising
    return result


def _new_payloads(
    batch: pa.RecordBatch,
    outcome: npt.NDArray[np.uint8],
    windows: Sequence[PayloadWindow],
    time_us: int,
    after_us: int,
) -> Payloads:
    """The payloads that will be written; repeated ones are marked in `outcome`."""
    rows = np.flatnonzero(outcome == WRITTEN)
    payloads = payloads_of(batch.column("value").take(pa.array(rows)), time_us)
    repeated = repeats_within(payloads)
    for window in windows:
        repeated |= window.contains(payloads, after_us)
    outcome[rows[repeated]] = DUPLICATE_BY_PAYLOAD
    return payloads.pick(~repeated)


def _assign_offsets(partition: Int32s, end_offsets: Int64s) -> tuple[Int64s | None, Directory]:
    """The stable order by partition (none if the rows are in it already) and the directory of the sorted rows."""
    if len(partition) == 1:
        return None, Directory(partition, end_offsets[partition], _ONE_ROW)
    # Sixteen bits are enough for every partition number, and numpy sorts them by radix.
    order = None
    if len(partition) and np.any(partition[1:] < partition[:-1]):
        order = np.argsort(partition.astype(np.uint16), kind="stable")
    counts = np.bincount(partition, minlength=0)
    present = np.flatnonzero(counts)
    return order, Directory(present.astype(np.int32), end_offsets[present], counts[present].astype(np.int64))


def _receipts(
    outcome: npt.NDArray[np.uint8],
    kept: Int64s | None,
    partition: Int32s,
    order: Int64s | None,
    directory: Directory,
) -> Receipts:
    """Carry partition and offset of each sorted row back to the place it was sent from."""
    if kept is None and len(partition) == 1:
        return Receipts(partition, directory.first_offset, outcome)
    sorted_offsets = np.arange(len(partition)) + np.repeat(directory.first_offset - directory.first_row, directory.rows)
    offsets = np.empty(len(partition), np.int64)
    offsets[slice(None) if order is None else order] = sorted_offsets
    if kept is None:
        return Receipts(partition, offsets, outcome)
    receipts = all_duplicates(len(outcome), WRITTEN)
    receipts.partition[kept] = partition
    receipts.offset[kept] = offsets
    return Receipts(receipts.partition, receipts.offset, outcome)

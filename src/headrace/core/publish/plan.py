"""Planning: what a publish will write, decided before anything is written.

    plan(canonical batch, state, settings, now) -> Commit, Receipts
    state.apply(commit)          after the commit is on the device, and again on recovery

`plan` changes nothing, so a commit that cannot be persisted leaves no trace. Its steps are those of the design:
duplicates by source, duplicates by payload, partitions, a stable sort by partition, offsets. All are done on whole
columns; `accept` in `messages` has checked the rows before.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.hashes.columns import Int64s
from headrace.core.limits import MICROSECONDS
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
from headrace.core.publish.receipts import (
    CONFLICT,
    DUPLICATE_BY_PAYLOAD,
    DUPLICATE_BY_SOURCE,
    WRITTEN,
    Receipts,
    all_duplicates,
)
from headrace.core.publish.routing import KeyRows, choose_partitions
from headrace.core.publish.single import Placement, place_of
from headrace.core.publish.sources import (
    NO_SOURCE,
    NO_UPDATES,
    NOTHING_WRITTEN,
    Int32s,
    RowSources,
    Source,
    SourceTable,
    ranks_by_source,
    row_sources,
    seqnos_of,
    updates_of,
)
from headrace.core.publish.state import NOWHERE, STORE_COMMITS, Commit, CommitKey, Directory, TopicState
from headrace.core.topics.settings import TopicSettings


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
    if batch.num_rows == 1 and settings.deduplication != "payload":
        place = place_of(batch, state, settings, time_us)
        if place is not None:
            return _planned_single(batch, place, state, time_us, keys)
    return plan_columns(batch, state, settings, now_us, time_us, keys, other_windows)


def _planned_single(
    batch: pa.RecordBatch, place: Placement, state: TopicState, time_us: int, keys: tuple[CommitKey, ...]
) -> tuple[Commit, Receipts]:
    """The commit of one row that is written, and its receipt."""
    partition = np.array([place.partition], np.int32)
    directory = Directory(partition, state.end_offsets[partition], _ONE_ROW)
    rows = stored_rows(batch, None)
    number, round_robin, sources = state.next_number, place.round_robin, place.sources
    commit = Commit(number, time_us, rows, directory, round_robin, keys, sources, NO_PAYLOADS)
    return commit, Receipts(partition, directory.first_offset, np.zeros(1, np.uint8))


def plan_columns(
    batch: pa.RecordBatch,
    state: TopicState,
    settings: TopicSettings,
    now_us: int,
    time_us: int,
    keys: tuple[CommitKey, ...] = (),
    other_windows: Sequence[PayloadWindow] = (),
) -> tuple[Commit, Receipts]:
    """`plan` of any number of rows, on whole columns."""
    outcome = np.zeros(batch.num_rows, np.uint8)
    sources = row_sources(batch) if "producer_id" in batch.schema.names else None
    seqno = seqnos_of(batch) if sources is not None else _NO_SEQNOS
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
    partition, round_robin, keyed = choose_partitions(batch, seqno, sources, state, time_us, settings.key_hash)
    order, directory = assign_offsets(partition, state.end_offsets)
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


def plan_reset(state: TopicState, sources: Sequence[Source], now_us: int) -> Commit:
    """The commit that resets the highest seqnos of some sources: it is logged like the messages were."""
    time_us = max(now_us, state.last_time_us + 1)
    number, round_robin = state.next_number, state.round_robin
    return Commit(
        number, time_us, NO_MESSAGES, NOWHERE, round_robin, (), NO_UPDATES, NO_PAYLOADS, resets=tuple(sources)
    )


def plan_close(last: Commit, number: int) -> Commit:
    """The last frame of a topic in a commit of several topics, behind those with messages and of their time."""
    key = CommitKey(STORE_COMMITS, number)
    numbers = last.number + 1, last.time_us
    return Commit(*numbers, NO_MESSAGES, NOWHERE, last.round_robin, (key,), NO_UPDATES, NO_PAYLOADS)


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
    """The commit of a stored frame, so that recovery applies what live traffic applied."""
    sources = row_sources(rows)
    updates = NO_UPDATES
    if sources is not None:
        partition = np.repeat(directory.partition, directory.rows)
        digests = functools.partial(digests_of, rows)
        updates = updates_of(sources, seqnos_of(rows), partition, ~KeyRows.of(rows).keyed, digests)
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


def _repeated_seqnos(rows: RowSources, seqno: Int64s, table: SourceTable, now_us: int) -> Bools:
    """Rows whose seqno is not above all that their source wrote before, in the log or earlier in this batch."""
    highest, _ = table.lookup(rows.sources, now_us)
    numbered = np.flatnonzero((rows.code != NO_SOURCE) & (seqno != NOTHING_WRITTEN))
    code, number = rows.code[numbered], seqno[numbered]
    repeated = number <= highest[code]
    if not _are_rising(code, number):
        repeated |= _not_rising(code, number)
    result = np.zeros(len(seqno), bool)
    result[numbered] = repeated
    return result


def _are_rising(code: Int64s, number: Int64s) -> bool:
    """Whether every row is above the row before it of the same source, as it is unless something was sent again."""
    if (code[1:] < code[:-1]).any():
        order = np.argsort(code, kind="stable")
        code, number = code[order], number[order]
    return bool(((number[1:] > number[:-1]) | (code[1:] != code[:-1])).all())


def _not_rising(code: Int64s, number: Int64s) -> Bools:
    """Rows that are at or below an earlier row of the same source."""
    order, ranks = ranks_by_source(code, number)
    rising = np.ones(len(code), bool)
    rising[1:] = ranks[1:] > np.maximum.accumulate(ranks)[:-1]
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
    values = batch.column("value")
    considered = outcome == WRITTEN
    if values.null_count:
        considered &= np.asarray(values.is_valid())
    rows = np.flatnonzero(considered)
    payloads = payloads_of(values.take(pa.array(rows)), time_us)
    repeated = repeats_within(payloads)
    for window in windows:
        repeated |= window.contains(payloads, after_us)
    outcome[rows[repeated]] = DUPLICATE_BY_PAYLOAD
    return payloads.pick(~repeated)


def assign_offsets(partition: Int32s, end_offsets: Int64s) -> tuple[Int64s | None, Directory]:
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

"""The sources of a topic: the highest seqno written and the linked partition of each (producer id, group id) pair.

Beside the highest seqno is a digest of the message that has it (`conflicts`), or `NO_DIGEST`: stores of earlier
versions have none.

A table is one dictionary from the pair to a slot, and arrays by slot. Work is done per distinct source of a batch,
never per message. An empty id counts as none: rows without a producer id have no source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.hashes.columns import Int64s, filled
from headrace.core.limits import LINK_IDLE_SECONDS, MICROSECONDS, SEQNO_JUMP_MAX
from headrace.core.reports.descriptions import SourceDescription

Source = tuple[str, str]
Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

NOTHING_WRITTEN: Final = -1
NO_LINK: Final = -1
NO_SOURCE: Final = -1
NO_DIGEST: Final = 0
# If this many rows of one source follow one another, on average, or there are no more runs than this, it is quicker to
# look at the runs than at the rows.
_RUN_ROWS_MIN: Final = 4

SNAPSHOT_SCHEMA: Final = pa.schema(
    [
        pa.field("producer_id", pa.string()),
        pa.field("message_group_id", pa.string()),
        pa.field("seqno", pa.int64()),
        pa.field("link", pa.int32()),
        pa.field("used_us", pa.int64()),
        pa.field("digest", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class RowSources:
    """Which source each row of a batch has: `code` indexes `sources`, or is NO_SOURCE."""

    code: Int64s
    sources: Sequence[Source]


@dataclass(frozen=True, slots=True)
class SourceUpdates:
    """What a commit changes: per source its highest seqno written, the partition to link it to if it has none, and the
    digest of the message with that seqno."""

    sources: Sequence[Source]
    seqno: Int64s
    link: Int32s
    digest: Int64s


NO_UPDATES: Final = SourceUpdates((), np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))


class SourceTable:
    """All sources of a topic. Not thread-safe: the topic's commit order protects it."""

    def __init__(self) -> None:
        self._slots: dict[Source, int] = {}
        self._seqno: Int64s = np.zeros(0, np.int64)
        self._link: Int32s = np.zeros(0, np.int32)
        self._used_us: Int64s = np.zeros(0, np.int64)
        self._digest: Int64s = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._slots)

    def last_seqno(self, source: Source) -> int | None:
        """The highest seqno written, or None."""
        slot = self._slots.get(source)
        return None if slot is None or self._seqno[slot] == NOTHING_WRITTEN else int(self._seqno[slot])

    def lookup(self, sources: Sequence[Source], now_us: int) -> tuple[Int64s, Int32s]:
        """The highest seqno and the living link of each source."""
        slots = self._known_slots(sources)
        known = slots >= 0
        seqno = np.full(len(sources), NOTHING_WRITTEN, np.int64)
        link = np.full(len(sources), NO_LINK, np.int32)
        seqno[known] = self._seqno[slots[known]]
        alive = self._used_us[slots[known]] > now_us - LINK_IDLE_SECONDS * MICROSECONDS
        link[known] = np.where(alive, self._link[slots[known]], NO_LINK)
        return seqno, link

    def known(self, source: Source, now_us: int) -> tuple[int, int]:
        """The highest seqno and the living link of one source."""
        slot = self._slots.get(source)
        if slot is None:
            return NOTHING_WRITTEN, NO_LINK
        is_alive = self._used_us[slot] > now_us - LINK_IDLE_SECONDS * MICROSECONDS
        return int(self._seqno[slot]), int(self._link[slot]) if is_alive else NO_LINK

    def digests(self, sources: Sequence[Source]) -> Int64s:
        """The digest of the message with the highest seqno of each source, or NO_DIGEST."""
        slots = self._known_slots(sources)
        digest = np.full(len(sources), NO_DIGEST, np.int64)
        digest[slots >= 0] = self._digest[slots[slots >= 0]]
        return digest

    def _known_slots(self, sources: Sequence[Source]) -> Int64s:
        return np.fromiter(map(self._slots.get, sources, [-1] * len(sources)), np.int64, len(sources))

    def reset(self, source: Source) -> None:
        """Reset the highest seqno of a source, so that its next message may have any; its link is kept."""
        slot = self._slots.get(source)
        if slot is not None:
            self._seqno[slot], self._digest[slot] = NOTHING_WRITTEN, NO_DIGEST

    def put(self, updates: SourceUpdates, now_us: int) -> None:
        """Apply what another server stored: as it is, because a seqno may have been reset."""
        self.apply(updates, now_us)
        slots = self._known_slots(updates.sources)
        self._seqno[slots], self._digest[slots] = updates.seqno, updates.digest

    def __contains__(self, source: Source) -> bool:
        return source in self._slots

    def described(self, now_us: int, producer_id: str | None, sources_max: int) -> list[SourceDescription]:
        """The most recently used sources of a producer, or of all, newest first, up to a limit."""
        used = self._used_us[: len(self)]
        chosen = np.arange(len(self))
        if producer_id is not None:
            chosen = np.array([slot for source, slot in self._slots.items() if source[0] == producer_id], np.int64)
        newest = chosen[np.argsort(-used[chosen], kind="stable")][:sources_max].tolist()
        wanted = set(newest)
        names = {slot: source for source, slot in self._slots.items() if slot in wanted}
        alive_us = now_us - LINK_IDLE_SECONDS * MICROSECONDS
        described = []
        for slot in newest:
            seqno, link, used_us = int(self._seqno[slot]), int(self._link[slot]), int(used[slot])
            last = None if seqno == NOTHING_WRITTEN else seqno
            partition = None if link == NO_LINK or used_us <= alive_us else link
            described.append(SourceDescription(*names[slot], last, partition, used_us))
        return described

    def apply(self, updates: SourceUpdates, now_us: int) -> None:
        """Apply the changes of a commit."""
        if len(updates.sources) == 1:
            self._apply_one(updates, now_us)
            return
        slots = np.fromiter(map(self._slot, updates.sources), np.int64, len(updates.sources))
        if len(slots):
            _, living_link = self.lookup(updates.sources, now_us)
            self._link[slots] = np.where(living_link == NO_LINK, updates.link, living_link)
            self._digest[slots] = np.where(updates.seqno >= self._seqno[slots], updates.digest, self._digest[slots])
            self._seqno[slots] = np.maximum(self._seqno[slots], updates.seqno)
            self._used_us[slots] = now_us

    def _apply_one(self, updates: SourceUpdates, now_us: int) -> None:
        """`apply` of one source, without whole columns."""
        source, seqno = updates.sources[0], int(updates.seqno[0])
        highest, link = self.known(source, now_us)
        slot = self._slot(source)
        self._link[slot] = updates.link[0] if link == NO_LINK else link
        if seqno >= highest:
            self._seqno[slot], self._digest[slot] = seqno, updates.digest[0]
        self._used_us[slot] = now_us

    def _slot(self, source: Source) -> int:
        slot = self._slots.setdefault(source, len(self._slots))
        if slot >= len(self._seqno):
            room = max(16, len(self._seqno))
            self._seqno = np.concatenate([self._seqno, np.full(room, NOTHING_WRITTEN, np.int64)])
            self._link = np.concatenate([self._link, np.full(room, NO_LINK, np.int32)])
            self._used_us = np.concatenate([self._used_us, np.zeros(room, np.int64)])
            self._digest = np.concatenate([self._digest, np.full(room, NO_DIGEST, np.int64)])
        return slot

    def expire_links(self, now_us: int) -> int:
        """Remove the links of sources that were idle too long; returns how many."""
        used = self._used_us[: len(self)]
        idle = (used <= now_us - LINK_IDLE_SECONDS * MICROSECONDS) & (self._link[: len(self)] != NO_LINK)
        self._link[: len(self)][idle] = NO_LINK
        return int(idle.sum())

    def forget_idle(self, sources_max: int) -> int:
        """Above `sources_max`, remove the longest idle sources without a link; returns how many."""
        excess = len(self) - sources_max
        if excess <= 0:
            return 0
        unlinked = np.flatnonzero(self._link[: len(self)] == NO_LINK)
        oldest = unlinked[np.argsort(self._used_us[unlinked], kind="stable")][:excess]
        kept = np.ones(len(self), bool)
        kept[oldest] = False
        names = [source for source, keep in zip(self._slots, kept.tolist(), strict=True) if keep]
        rows = np.flatnonzero(kept)
        self._slots = {source: slot for slot, source in enumerate(names)}
        self._seqno, self._link, self._used_us = self._seqno[rows], self._link[rows], self._used_us[rows]
        self._digest = self._digest[rows]
        return len(oldest)

    def copy(self) -> SourceTable:
        """An independent table with the same content."""
        twin = SourceTable()
        twin._slots = self._slots.copy()
        twin._seqno, twin._link, twin._used_us = self._seqno.copy(), self._link.copy(), self._used_us.copy()
        twin._digest = self._digest.copy()
        return twin

    def snapshot(self) -> pa.RecordBatch:
        """The whole table as Arrow, in slot order."""
        count = len(self)
        columns = [
            pa.array([source[0] for source in self._slots], pa.string()),
            pa.array([source[1] for source in self._slots], pa.string()),
            pa.array(self._seqno[:count]),
            pa.array(self._link[:count]),
            pa.array(self._used_us[:count]),
            pa.array(self._digest[:count]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SNAPSHOT_SCHEMA)

    @classmethod
    def restore(cls, snapshot: pa.RecordBatch) -> SourceTable:
        """The table that gave this snapshot."""
        table = cls()
        pairs = zip(
            snapshot.column("producer_id").to_pylist(),
            snapshot.column("message_group_id").to_pylist(),
            strict=True,
        )
        table._slots = {pair: slot for slot, pair in enumerate(pairs)}
        table._seqno = snapshot.column("seqno").to_numpy().copy()
        table._link = snapshot.column("link").to_numpy().copy()
        table._used_us = snapshot.column("used_us").to_numpy().copy()
        table._digest = snapshot.column("digest").to_numpy().copy()
        return table


def row_sources(batch: pa.RecordBatch) -> RowSources | None:
    """The source of each row, sources in the order of their first row; None if no row has one."""
    if "producer_id" not in batch.schema.names:
        return None
    return _sources_of_runs(batch) or _sources_of_rows(batch)


def _sources_of_runs(batch: pa.RecordBatch) -> RowSources | None:
    """The same, quicker if many rows of one source follow one another; None if they do not."""
    ends: list[Int32s] = []
    ids: list[list[str | None]] = []
    for name in ("producer_id", "message_group_id"):
        if name in batch.schema.names:
            runs = pc.run_end_encode(batch.column(name))
            if len(runs.run_ends) > max(_RUN_ROWS_MIN, batch.num_rows // _RUN_ROWS_MIN):
                return None
            ends.append(np.asarray(runs.run_ends))
            ids.append(runs.values.to_pylist())
    run_ends = ends[0] if len(ends) == 1 else np.union1d(*ends)
    producers, *groups = (
        [values[place] for place in np.searchsorted(own_ends, run_ends).tolist()]
        for own_ends, values in zip(ends, ids, strict=True)
    )
    codes: dict[Source, int] = {}
    run_codes = [
        codes.setdefault((producer, group or ""), len(codes)) if producer else NO_SOURCE
        for producer, group in zip(producers, groups[0] if groups else [""] * len(producers), strict=True)
    ]
    return RowSources(np.repeat(np.array(run_codes, np.int64), np.diff(run_ends, prepend=0)), list(codes))


def _sources_of_rows(batch: pa.RecordBatch) -> RowSources:
    """The same for any order of rows."""
    names = batch.schema.names
    producer = batch.column("producer_id").dictionary_encode()
    producer_codes = filled(producer.indices, NO_SOURCE).astype(np.int64)
    producers = producer.dictionary.to_pylist()
    if "" in producers:
        producer_codes[producer_codes == producers.index("")] = NO_SOURCE
    if "message_group_id" not in names:
        return _without_gaps(producer_codes, [(name, "") for name in producers])
    group = pc.fill_null(batch.column("message_group_id"), "").dictionary_encode()
    groups = group.dictionary.to_pylist()
    pairs = producer_codes * len(groups) + np.asarray(group.indices)
    distinct = pa.array(pairs, mask=producer_codes == NO_SOURCE).dictionary_encode()
    codes = filled(distinct.indices, NO_SOURCE).astype(np.int64)
    sources = [(producers[pair // len(groups)], groups[pair % len(groups)]) for pair in distinct.dictionary.to_pylist()]
    return RowSources(codes, sources)


def _without_gaps(codes: Int64s, sources: list[Source]) -> RowSources:
    """Leave out the source of the empty producer id, which no row refers to."""
    empty = ("", "")
    if empty in sources:
        gap = sources.index(empty)
        sources = sources[:gap] + sources[gap + 1 :]
        codes = codes - (codes > gap)
    return RowSources(codes, sources)


def ranks_by_source(code: Int64s, seqno: Int64s) -> tuple[Int64s, Int64s]:
    """The rows ordered by source, and in that order a number for each that rises with its seqno within its source.

    Seqnos become ranks, so that source and rank fit one integer; a running maximum over it restarts with each source.
    """
    _, rank = np.unique(seqno, return_inverse=True)
    order = np.argsort(code, kind="stable")
    return order, (code * (len(code) + 1) + rank)[order]


def first_jump(rows: RowSources, seqno: Int64s, highest: Int64s) -> tuple[int, int] | None:
    """The first row whose seqno is too far above the previous one of its source, and that one; None if there is none.

    The one before it is the next lower seqno of the batch or, below all of them, the highest written; a source that
    has neither may start anywhere. `highest` is by source.
    """
    numbered = np.flatnonzero((rows.code != NO_SOURCE) & (seqno != NOTHING_WRITTEN))
    order = numbered[np.lexsort((seqno[numbered], rows.code[numbered]))]
    code, number = rows.code[order], seqno[order]
    before = np.full(len(order), NOTHING_WRITTEN, np.int64)
    before[1:] = np.where(code[1:] == code[:-1], number[:-1], NOTHING_WRITTEN)
    before = np.maximum(before, highest[code])
    jumping = (before != NOTHING_WRITTEN) & (number - before > SEQNO_JUMP_MAX)
    if not jumping.any():
        return None
    place = int(np.flatnonzero(jumping)[np.argmin(order[jumping])])
    return int(order[place]), int(before[place])


def updates_of(
    rows: RowSources, seqno: Int64s, partition: Int32s, linking: Bools, digests: Callable[[Int64s], Int64s]
) -> SourceUpdates:
    """What written rows change, in live traffic and on recovery alike; `digests` gives those of some rows.

    Rows are in their stored order, and so are the sources of the update: a recovered table has the same slots.
    """
    count = len(rows.sources)
    sourced = np.flatnonzero(rows.code != NO_SOURCE)
    highest = np.full(count, NOTHING_WRITTEN, np.int64)
    np.maximum.at(highest, rows.code[sourced], seqno[sourced])
    # Of several assignments to one element the last one counts, so the first row is assigned last.
    first_row = np.full(count, len(rows.code), np.int64)
    first_row[rows.code[sourced[::-1]]] = sourced[::-1]
    seen = np.argsort(first_row)[: np.count_nonzero(first_row < len(rows.code))]
    link = links_of(rows, seqno, partition, linking)
    digest = np.full(count, NO_DIGEST, np.int64)
    last_row = np.full(count, len(rows.code), np.int64)
    numbered = sourced[seqno[sourced] != NOTHING_WRITTEN]
    at_highest = numbered[seqno[numbered] == highest[rows.code[numbered]]]
    last_row[rows.code[at_highest]] = at_highest
    has_last = last_row < len(rows.code)
    digest[has_last] = digests(last_row[has_last])
    return SourceUpdates([rows.sources[code] for code in seen.tolist()], highest[seen], link[seen], digest[seen])


def links_of(rows: RowSources, seqno: Int64s, partition: Int32s, linking: Bools) -> Int32s:
    """Where to link each source that has no link: to the partition of its row with the lowest seqno.

    Only rows without a key count, and `linking` marks them. Of several rows with that seqno the lowest partition wins.
    """
    link = np.full(len(rows.sources), NO_LINK, np.int32)
    bound = np.flatnonzero(linking & (rows.code != NO_SOURCE))
    link[rows.code[bound]] = partition[bound]
    if np.array_equal(link[rows.code[bound]], partition[bound]):
        # Each source is in one partition only.
        return link
    # As above, the one that counts is last.
    lowest_last = bound[np.lexsort((partition[bound], seqno[bound]))[::-1]]
    link[rows.code[lowest_last]] = partition[lowest_last]
    return link


def seqnos_of(batch: pa.RecordBatch) -> Int64s:
    """The seqno of each row, NOTHING_WRITTEN for those without."""
    if "seqno" not in batch.schema.names:
        return np.full(batch.num_rows, NOTHING_WRITTEN, np.int64)
    return filled(batch.column("seqno"), NOTHING_WRITTEN)

"""Reads many partitions in one pass: every frame is decoded once, for all partitions with rows in it.

One by one, each partition costs an index search, a decoding and a dozen small arrays: with ten thousand partitions that
is most of the time. Here the entries of all partitions are chosen together, on whole columns.

Each partition gets its share of the limits, at least one message; those whose next message is oldest come first, and
what does not fit is omitted. So is a partition whose next offset cannot be read: reading it alone raises the reason.
Stateless, so as thread-safe as the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.hashes.columns import Int64s
from headrace.core.messages import join, message_sizes, read_rows
from headrace.storage.disk.files.segment import Segment
from headrace.storage.ranges import OffsetRange

_NOT_WANTED: Final = np.iinfo(np.int64).max
# Frames up to this size are decoded together.
_DECODED_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class _Wanted:
    """By partition the first offset wanted and the one to stop before; and the limits of all, and of each."""

    start: Int64s
    stop: Int64s
    messages_max: int
    bytes_max: int
    share_bytes: int


@dataclass(slots=True)
class Entries:
    """Rows of one partition in one frame each; all columns have one length."""

    segment: Int64s
    partition: Int64s
    first_offset: Int64s
    frame: Int64s
    first_row: Int64s
    rows: Int64s
    time_us: Int64s
    row_bytes: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.partition)

    def pick(self, places: npt.NDArray[np.generic]) -> Entries:
        """Some of them, in this order."""
        return Entries(*(getattr(self, name)[places] for name in _NAMES))


_NAMES: Final = tuple(Entries.__dataclass_fields__)


def gather(
    segments: Sequence[Segment],
    offsets: OffsetRange,
    positions: Mapping[int, int],
    messages_max: int,
    bytes_max: int,
    touch: Callable[[Segment], None],
) -> list[pa.RecordBatch]:
    """Messages of many partitions from these positions on, a batch for each partition that has any."""
    wanted = _wanted(offsets, positions, messages_max, bytes_max)
    found = _find(segments, offsets, wanted)
    chosen = _chosen(found, wanted)
    while len(damaged := damaged_frames(chosen, segments)):
        is_bad = np.isin(found.segment << 32 | found.frame, damaged)
        found = found.pick(~is_bad)
        chosen = _chosen(found, wanted)
    if not len(chosen):
        return []
    return _cut(read_entries(chosen, segments, touch), wanted)


def _wanted(offsets: OffsetRange, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> _Wanted:
    count = len(positions)
    partition = np.fromiter(positions.keys(), np.int64, count)
    at = np.fromiter(positions.values(), np.int64, count)
    start = np.full(len(offsets.end), _NOT_WANTED)
    stop = np.zeros(len(offsets.end), np.int64)
    start[partition] = at
    ends = offsets.end[partition]
    if offsets.gaps:
        pairs = zip(partition.tolist(), at.tolist(), strict=True)
        ends = np.array([offsets.stop(place, offset) for place, offset in pairs], np.int64)
    stop[partition] = np.minimum(at + max(1, messages_max // count), ends)
    return _Wanted(start, stop, messages_max, bytes_max, max(1, bytes_max // count))


def _find(segments: Sequence[Segment], offsets: OffsetRange, wanted: _Wanted) -> Entries:
    """The entries that hold anything wanted, by partition and offset."""
    parts: list[Entries] = []
    for place, segment in enumerate(segments):
        if may_hold(segments, place, offsets.end, wanted.start, wanted.stop):
            parts.append(entries_of(segment, place, wanted.start, wanted.stop))
    found = joined(parts)
    return found.pick(np.lexsort((found.first_offset, found.partition)))


def may_hold(segments: Sequence[Segment], place: int, log_end: Int64s, start: Int64s, stop: Int64s) -> bool:
    """Whether a segment ends behind the start of anything wanted; without a look at its index."""
    following = segments[place + 1].header.base_offsets if place + 1 < len(segments) else log_end
    end = np.zeros(max(len(start), len(following)), np.int64)
    end[: len(following)] = following
    return bool(np.any(start < np.minimum(stop, end[: len(start)])))


def joined(parts: Sequence[Entries]) -> Entries:
    """Entries one after another."""
    columns: list[npt.NDArray[Any]] = [np.concatenate([getattr(part, name) for part in parts]) for name in _NAMES]
    return Entries(*columns)


def entries_of(segment: Segment, place: int, start: Int64s, stop: Int64s) -> Entries:
    """The entries of a segment that hold anything from `start` up to `stop`, which are by partition, cut to that."""
    index = segment.index
    entries = index.entries
    # After the entries: every visible entry has its frame by then.
    frames = index.frames
    partition, first = entries["partition"].astype(np.int64), entries["first_offset"]
    rows = entries["rows"].astype(np.int64)
    known = np.minimum(partition, len(start) - 1)
    is_wanted = (first < stop[known]) & (first + rows > start[known]) & (partition == known)
    chosen = np.flatnonzero(is_wanted)
    partition, first, rows = partition[chosen], first[chosen], rows[chosen]
    frame = entries["frame"][chosen].astype(np.int64)
    skip = np.maximum(0, start[partition] - first)
    count = np.minimum(first + rows, stop[partition]) - first - skip
    first_row = entries["first_row"][chosen].astype(np.int64) + skip
    row_bytes = frames["bytes"][frame] / np.maximum(frames["rows"][frame], 1)
    segments = np.full(len(chosen), place, np.int64)
    return Entries(segments, partition, first + skip, frame, first_row, count, frames["time_us"][frame], row_bytes)


def _chosen(found: Entries, wanted: _Wanted) -> Entries:
    """What is read of the entries: dense from each position on, within the shares, and within the limits of all."""
    begins = begins_of(found.partition)
    before = running(found.rows, begins)
    is_dense = found.first_offset == wanted.start[found.partition] + before
    bytes_before = running(found.rows * found.row_bytes, begins)
    fitting = np.ceil((wanted.share_bytes - bytes_before) / np.maximum(found.row_bytes, 1)).astype(np.int64)
    rows = np.clip(fitting, 0, found.rows)
    rows[begins] = np.maximum(rows[begins], 1)
    rows[~is_dense] = 0
    chosen = found.pick(np.flatnonzero(rows))
    chosen.rows = rows[rows > 0]
    return _oldest_first(chosen, wanted)


def _oldest_first(chosen: Entries, wanted: _Wanted) -> Entries:
    begins = begins_of(chosen.partition)
    group = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(chosen.time_us[first], kind="stable")] = np.arange(len(first))
    chosen = chosen.pick(np.argsort(rank[group], kind="stable"))
    rows_before = np.cumsum(chosen.rows) - chosen.rows
    size = chosen.rows * chosen.row_bytes
    is_within = (rows_before < wanted.messages_max) & (np.cumsum(size) - size < wanted.bytes_max)
    return chosen.pick(np.flatnonzero(is_within))


def damaged_frames(chosen: Entries, segments: Sequence[Segment]) -> Int64s:
    """The damaged ones of frames that are read for the first time, with their segments."""
    bad: list[int] = []
    for place in np.unique(chosen.segment).tolist():
        numbers = np.unique(chosen.frame[chosen.segment == place])
        bad += [place << 32 | number for number in segments[place].damaged(numbers)]
    return np.array(bad, np.int64)


def read_entries(chosen: Entries, segments: Sequence[Segment], touch: Callable[[Segment], None]) -> pa.RecordBatch:
    """The rows of the entries in their order, as readers get them."""
    stored, rows = _stored_rows(chosen, segments, touch), chosen.rows
    partition = np.repeat(chosen.partition, rows).astype(np.int32)
    offset = np.repeat(chosen.first_offset, rows) + _steps(rows)
    return read_rows(stored, partition, offset, np.repeat(chosen.time_us, rows))


def _stored_rows(chosen: Entries, segments: Sequence[Segment], touch: Callable[[Segment], None]) -> pa.RecordBatch:
    row_before = np.cumsum(chosen.rows) - chosen.rows
    parts: list[pa.RecordBatch] = []
    targets: list[Int64s] = []
    for place in np.unique(chosen.segment).tolist():
        segment = segments[place]
        here = np.flatnonzero(chosen.segment == place)
        numbers = np.unique(chosen.frame[here])
        frames = segment.index.frames
        chunk = np.cumsum(frames["bytes"][numbers], dtype=np.int64) // _DECODED_BYTES
        for each in np.unique(chunk).tolist():
            some = numbers[chunk == each]
            entries = here[np.isin(chosen.frame[here], some)]
            frame_rows = frames["rows"][some].astype(np.int64)
            starts = (np.cumsum(frame_rows) - frame_rows)[np.searchsorted(some, chosen.frame[entries])]
            rows = chosen.rows[entries]
            steps = _steps(rows)
            parts.append(_taken(segment.frames_of(some), np.repeat(starts + chosen.first_row[entries], rows) + steps))
            targets.append(np.repeat(row_before[entries], rows) + steps)
        touch(segment)
    return _taken(join(parts), np.argsort(np.concatenate(targets), kind="stable"))


def _steps(rows: Int64s) -> Int64s:
    """For each row of each entry, how many rows of the entry are before it."""
    steps: Int64s = np.arange(int(rows.sum())) - np.repeat(np.cumsum(rows) - rows, rows)
    return steps


def _taken(batch: pa.RecordBatch, places: Int64s) -> pa.RecordBatch:
    """Some rows of a batch; the batch itself if they are all of them in their order."""
    is_all = len(places) == batch.num_rows and np.array_equal(places, np.arange(len(places)))
    return batch if is_all else batch.take(pa.array(places))


def _cut(batch: pa.RecordBatch, wanted: _Wanted) -> list[pa.RecordBatch]:
    """A batch per partition, within the byte limit but at least one row each."""
    partition = np.asarray(batch.column("partition"))
    sizes = message_sizes(batch.column("value"), batch.column("key"), batch.column("attributes"))
    begins = begins_of(partition)
    is_kept = begins | (running(sizes, begins) + sizes <= wanted.share_bytes)
    total = np.cumsum(np.where(is_kept, sizes, 0))
    is_kept &= total <= wanted.bytes_max
    is_kept[:1] = True
    bounds = [*np.flatnonzero(begins).tolist(), len(partition)]
    kept = np.add.reduceat(is_kept.astype(np.int64), bounds[:-1]).tolist()
    return [batch.slice(start, count) for start, count in zip(bounds, kept, strict=False) if count]


def begins_of(partition: Int64s) -> npt.NDArray[np.bool_]:
    """Where the entries of the next partition begin; those of one partition are adjacent."""
    begins = np.ones(len(partition), bool)
    begins[1:] = partition[1:] != partition[:-1]
    return begins


def running(values: npt.NDArray[Any], begins: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """The running sum before each value, within its partition."""
    before: npt.NDArray[Any] = np.cumsum(values) - values
    since: npt.NDArray[Any] = before - before[begins][np.cumsum(begins) - 1]
    return since

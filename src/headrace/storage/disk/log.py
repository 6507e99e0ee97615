"""The log of one topic: segments in a directory, the newest one written, all of them read.

Commits are ordered by the write lock; reads take no lock but a short one around the list of mapped segments. What
readers may see is a tuple of segments and an array of end offsets, both replaced and never changed.

A failed write leaves nothing behind: the log is truncated and continues. After a failed sync the tail is unknown:
nothing more is accepted until the store is reopened.
"""

from __future__ import annotations

import bisect
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from headrace.core.errors import NO_ROOM, Damaged, DiskFull, LogFailed, OutcomeUnknown, exhausted
from headrace.core.hashes.columns import Int64s
from headrace.core.messages import NO_MESSAGES, content_bytes, join, read_batch
from headrace.core.publish.payload_window import PayloadWindow
from headrace.core.publish.state import Commit, TopicState
from headrace.core.reports.histogram import SECONDS, Histogram
from headrace.core.topics.offsets import widened
from headrace.core.topics.retention import Piece, Sightings, droppable, piece_bytes_max, should_complete
from headrace.core.topics.settings import TopicSettings
from headrace.storage.catalog import TopicRecord
from headrace.storage.commits.fences import LocalFences
from headrace.storage.disk.files import frame, snapshot, watermark
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.index import GrowingIndex
from headrace.storage.disk.files.segment import MappedSegments, Segment, SegmentHeader, create_segment, header_bytes
from headrace.storage.disk.files.watermark import Watermark
from headrace.storage.disk.gather import gather
from headrace.storage.disk.opening.recovery import Recovered
from headrace.storage.disk.options import DiskOptions
from headrace.storage.disk.plan_ahead import planned_ahead
from headrace.storage.disk.preallocation import Preallocation
from headrace.storage.disk.range_scan import scan_ranges
from headrace.storage.disk.tail_cache import TAIL_COMMIT_BYTES_MAX, TailCache
from headrace.storage.interface import Decide, OffsetRange
from headrace.storage.ranges import check_range, offsets_past
from headrace.storage.shares import within_bytes

# A snapshot is written once the log has grown by this many times the snapshot's own size.
SNAPSHOT_GROWTH: Final = 4
_CLOSED: Final = "the log is closed"

logger = logging.getLogger(__name__)


class WrittenFrame(NamedTuple):
    """A frame in the file: where it begins, its commit, and its record batch if that is small enough for the tail.

    The commit of a frame that is not the last has no rows: only one frame is in memory at a time.
    """

    position: int
    header: frame.Header
    commit: Commit
    body: Any


class DiskLog:
    """The messages of one topic on disk. Thread-safe."""

    def __init__(
        self, files: FileSystem, directory: Path, topic: TopicRecord, options: DiskOptions, recovered: Recovered
    ) -> None:
        self._files = files
        self._directory = directory
        self.topic = topic
        self._options = options
        # The settings at the last run of retention.
        self._segment_bytes_max = piece_bytes_max(topic.settings, options.segment_bytes)
        self._state = recovered.state
        self._segments = tuple(recovered.segments)
        self._visible_end = recovered.state.end_offsets.copy()
        # Replaced, never changed.
        self._deleted_before = np.array(topic.deleted_before, np.int64)
        self._snapshot_number = recovered.snapshot_number
        self._bytes_since_snapshot = 0
        self._handle = files.open(self._segments[-1].path)
        self._end = recovered.end
        self._failure: str | None = None
        self._sealed = 0
        self.sync_seconds = Histogram(SECONDS)
        # Held while something is written.
        self.writing = threading.Lock()
        self._sightings = Sightings()
        self._fences = LocalFences()
        self._tail = TailCache()
        self._room = Preallocation(files, options)
        self._mapped = MappedSegments()
        self.damage = recovered.damage
        self._damaged = {damaged.file for damaged in recovered.damage}
        self._gaps = recovered.gaps
        self._missing_numbers = recovered.missing_numbers
        self._mark = recovered.mark
        self._archived = [] if recovered.mark is None else recovered.mark.archived
        for damaged in self.damage:
            logger.error("topic %r: %s", topic.name, damaged)
        for note in recovered.notes:
            logger.warning("topic %r: %s", topic.name, note)

    @property
    def state(self) -> TopicState:
        """What planning knows; read it only under the write lock."""
        return self._state

    @property
    def failure(self) -> str | None:
        """Why nothing more is accepted, or None."""
        return self._failure

    @property
    def damaged_segments(self) -> int:
        """The number of segments that opening or readers found damaged."""
        return len(self._damaged)

    def peek(self) -> TopicState:
        """What planning knows; always available."""
        return self._state

    def window(self) -> PayloadWindow:
        """The recently written payloads."""
        return self._state.window

    def commit(self, decide: Decide, store_wide: bool = False) -> None:
        """Decide, persist, apply: the frames that `decide` returns become visible together, or not at all."""
        with self.writing:
            self._check_failure()
            written = self._write(decide(self._state, self._fences))
            if written:
                self._take(written)
            self.show()

    # For commits of several topics (`store_commit`), which hold `writing` from the first step to the last.

    @property
    def newest(self) -> Segment:
        """The segment that is written."""
        return self._segments[-1]

    def begin(self, decide: Decide, room: int) -> list[WrittenFrame]:
        """Write the frames of a commit, durably: they count once a last one, for which there is room, is there."""
        self._check_failure()
        return self._write(decide(self._state, self._fences), room)

    def end(self, written: Sequence[WrittenFrame], encoded: bytes) -> None:
        """Write the last of these frames, durably, and apply them; `show` makes them visible."""
        self._files.write(self._handle, written[-1].position, [encoded])
        self._files.sync(self._handle)
        self._apply(written)

    def break_off(self, reason: str, error: BaseException, in_doubt: bool) -> None:
        """Remove the frames of a commit; if it may be decided, accept nothing more: opening finds out."""
        if in_doubt:
            self._failure = reason
        else:
            self._cut_off(reason, error)

    def show(self) -> None:
        """Let readers see what was applied."""
        self._visible_end = self._state.end_offsets.copy()

    def offsets(self) -> OffsetRange:
        """Start and end of every partition, as readers may see them."""
        # The start is read first, so that it is never beyond the end, nor has more partitions.
        base = self._segments[0].header.base_offsets
        end = self._visible_end
        start = base if len(base) == len(end) else widened(base, len(end))
        deleted_before = self._deleted_before
        if not self._gaps and not len(deleted_before):
            return OffsetRange(start, end)
        return offsets_past(start, end, self._gaps, deleted_before)

    def read(self, partition: int, offset: int, messages_max: int, bytes_max: int) -> pa.RecordBatch:
        """Messages of one partition from `offset` on, within the limits but at least one if there is one."""
        end = check_range(self.topic.name, self.offsets(), partition, offset)
        stop = min(end, offset + messages_max)
        newest = self._tail.read(partition, offset, stop) if offset < stop else None
        stored, times = newest or self._read_segments(partition, offset, stop, end, bytes_max)
        return within_bytes(read_batch(stored, partition, offset, times), bytes_max)

    def read_many(self, positions: Mapping[int, int], messages_max: int, bytes_max: int) -> list[pa.RecordBatch]:
        """Messages of many partitions in one pass, each its share, the oldest first; damaged ones are omitted."""
        offsets = self.offsets()
        behind = {
            partition: offset
            for partition, offset in positions.items()
            if offset < check_range(self.topic.name, offsets, partition, offset)
        }
        if not behind:
            return []
        try:
            return gather(self._segments, offsets, behind, messages_max, bytes_max, self._mapped.touch)
        except Damaged:
            # Retention may have dropped a segment since; reading each partition raises that, or the damage.
            return []

    def read_ranges(self, start: Int64s, stop: Int64s, messages_max: int, bytes_max: int) -> pa.RecordBatch | None:
        """Messages of ranges of many partitions in one pass, in the order written."""
        offsets, is_wanted = self.offsets(), start < stop
        # Partitions may have been added since the ranges were made.
        is_kept = (start >= offsets.start[: len(start)]) & (stop <= offsets.end[: len(start)])
        if offsets.gaps or not is_kept[is_wanted].all():
            return None
        stop = np.where(is_wanted, stop, 0)
        try:
            return scan_ranges(self._segments, offsets.end, start, stop, messages_max, bytes_max, self._mapped.touch)
        except Damaged:
            # As in `read_many`.
            return None

    def _read_segments(
        self, partition: int, offset: int, stop: int, end: int, bytes_max: int
    ) -> tuple[pa.RecordBatch, Int64s]:
        """Stored rows up to `stop` with their times, about `bytes_max` bytes, at least one row if there is one."""
        segments = self._segments
        batches: list[pa.RecordBatch] = []
        times: list[Int64s] = []
        position, bytes_left = offset, bytes_max
        place = self._segment_of(segments, partition, offset)
        while position < stop and (bytes_left > 0 or not batches):
            segment_end = segments[place + 1].base_offset(partition) if place + 1 < len(segments) else end
            if position >= segment_end:
                place += 1
                continue
            try:
                stored, stored_times = segments[place].read(
                    partition, position, min(stop, segment_end) - position, bytes_left
                )
            except Damaged as error:
                if batches:
                    break
                # Retention may have dropped it since.
                check_range(self.topic.name, self.offsets(), partition, offset)
                self._damaged.add(error.file)
                raise
            self._mapped.touch(segments[place])
            batches.append(stored)
            times.append(stored_times)
            position += stored.num_rows
            bytes_left -= content_bytes(stored)
        if not batches:
            return NO_MESSAGES, np.zeros(0, np.int64)
        return join(batches), times[0] if len(times) == 1 else np.concatenate(times)

    def first_at(self, partition: int, time_us: int) -> int:
        """The first offset of a partition at or after a time; its end offset if all messages are older."""
        offsets = self.offsets()
        start, end = int(offsets.start[partition]), int(offsets.end[partition])
        segments = self._segments
        for place, segment in enumerate(segments):
            is_older = place + 1 < len(segments) and segments[place + 1].header.created_us < time_us
            if not is_older:
                try:
                    first = segment.first_at(partition, time_us)
                except Damaged:
                    if segment in self._segments:
                        raise
                    # Retention dropped it since.
                    continue
                self._mapped.touch(segment)
                if first is not None:
                    return min(max(first, start), end)
        return end

    def time_of(self, partition: int, offset: int) -> int | None:
        """When the message with this offset was written, or None if it does not exist."""
        offsets = self.offsets()
        if not offsets.start[partition] <= offset < offsets.end[partition]:
            return None
        if offsets.readable(partition, offset) != offset:
            return None
        newest = self._tail.time_of(partition, offset)
        if newest is not None:
            return newest
        segments = self._segments
        segment = segments[self._segment_of(segments, partition, offset)]
        try:
            time_us = segment.time_of(partition, offset)
        except Damaged:
            if segment in self._segments:
                raise
            # Retention dropped it since.
            return None
        self._mapped.touch(segment)
        return time_us

    def add_partitions(self, partitions: int) -> None:
        """Grow to this number of partitions."""
        with self.writing:
            self._state.add_partitions(partitions)
            self._visible_end = self._state.end_offsets.copy()

    def delete_before(self, offsets: Sequence[int]) -> None:
        """Hide the messages of each partition below an offset."""
        self._deleted_before = np.array(offsets, np.int64)

    def drop_outlived(self, settings: TopicSettings, held: Int64s | None, now_us: int) -> int:
        """Drop the oldest segments that are past retention and not held; returns how many."""
        with self.writing:
            self._check_failure()
            self._segment_bytes_max = piece_bytes_max(settings, self._options.segment_bytes)
            pieces = self._sightings.dated(self._pieces(), now_us)
            begun_us = self._segments[-1].header.created_us
            deleted_before = self._deleted_before
            is_used = self._end > self._header_bytes()
            if is_used and should_complete(pieces, begun_us, settings, held, now_us, deleted_before):
                self._roll_for_retention()
                pieces = self._sightings.dated(self._pieces(), now_us)
            count = min(droppable(pieces, settings, held, now_us, deleted_before), len(pieces) - 1)
            dropped, kept = self._segments[:count], self._segments[count:]
            if dropped and settings.archive == "on" and held is not None:
                base = kept[0].header.base_offsets
                self._archived = np.minimum(base, widened(held, len(base))[: len(base)]).tolist()
            if dropped:
                self._write_in_need(dropped, kept[0].header.first_number)
            for segment in dropped:
                self._drop(segment)
        self._mapped.forget(dropped)
        return len(dropped)

    def _roll_for_retention(self) -> None:
        """Start a new segment; if the disk is full, older ones are dropped anyway, and it is retried later."""
        try:
            self._roll()
        except OSError as error:
            if error.errno not in NO_ROOM or len(self._segments) == 1:
                raise

    def _write_in_need(self, doomed: Sequence[Segment], kept_number: int) -> None:
        """Write the snapshot and the watermark that allow segments to be dropped, even on a full disk.

        First deletes what is dispensable: the indexes of those segments, preallocated space, and all snapshots but the
        newest, which together are about as large as the snapshot to be written.
        """
        if self._snapshot_number < kept_number:
            write = self._write_snapshot
        elif self._archived != ([] if self._mark is None else self._mark.archived):
            write = self._write_synced_mark
        else:
            return
        try:
            write()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._room.cut(self._handle, self._end)
            for segment in doomed:
                segment.release()
                self._files.remove(segment.index_path)
            snapshot.remove_older(self._files, self._directory, kept=1)
            write()

    def _drop(self, oldest: Segment) -> None:
        """Delete the oldest segment, durably: none may remain, even after a crash, if a later one was deleted."""
        before, self._segments = self._segments, self._segments[1:]
        try:
            self._files.remove(oldest.index_path)
            self._files.remove(oldest.path)
        except OSError:
            self._segments = before
            raise
        self._damaged.discard(str(oldest.path))
        self._files.sync_directory(self._directory)

    def seal(self) -> int:
        """Seal complete segments that are not sealed; returns how many were sealed since the last call."""
        with self.writing:
            for segment in self._segments[:-1]:
                if segment.growing is not None and self._failure is None:
                    self._seal(segment)
            sealed, self._sealed = self._sealed, 0
            return sealed

    def bytes_stored(self) -> int:
        """The bytes of all segments."""
        # Under the lock, so that retention does not delete a file whose size is read.
        with self.writing:
            return self._end + sum(self._files.size(segment.path) for segment in self._segments[:-1])

    def close(self) -> None:
        """Write what makes the next opening quick, and release the files."""
        with self.writing:
            if self._failure == _CLOSED:
                return
            if self._failure is None:
                try:
                    self._room.cut(self._handle, self._end)
                    if self._options.durability == "os":
                        # After a clean close everything is on the device, even if no publish waited for that.
                        self._files.sync(self._handle)
                    self._segments[-1].seal()
                    if self._snapshot_number != self._state.next_number:
                        self._write_snapshot()
                    self._write_mark(self._end)
                except OSError as error:
                    logger.warning("topic %r was closed without index or snapshot: %s", self.topic.name, error)
            self._failure = _CLOSED
            self._tail.clear()
            self._files.close(self._handle)
            # Mapped files occupy disk space even after they are deleted.
            for segment in self._segments:
                segment.release()

    def _write(self, commits: Iterable[Commit], room: int = 0) -> list[WrittenFrame]:
        """Write the frames of a commit, each as it is planned; a failure leaves nothing behind.

        With room for another frame, that one will make these valid.
        """
        written: list[WrittenFrame] = []
        position = self._end
        try:
            for commit in commits if isinstance(commits, Sequence) else planned_ahead(commits):
                if not written and self._is_full():
                    self._roll()
                    position = self._end
                if room:
                    commit = replace(commit, continues=True)
                elif written and not commit.continues:
                    # The last frame makes the others valid, so they are synced before it.
                    self._sync()
                header, buffers = frame.encode(commit, self.topic.id, position)
                self._files.write(self._handle, position, buffers)
                body = buffers[1] if header.body_bytes <= TAIL_COMMIT_BYTES_MAX else None
                written.append(WrittenFrame(position, header, commit.bare() if commit.continues else commit, body))
                position += header.bytes
            if written and position >= self._room.due:
                self._room.extend(self._handle, position, position - self._end)
            if written and room:
                self._files.write(self._handle, position, [bytes(room)])
                self._files.sync(self._handle)
        except OSError as error:
            self._undo(error)
        except Exception as error:
            if written:
                self._cut_off(f"planning: {error!r}", error)
            if (short := exhausted(f"topic {self.topic.name!r}", error)) is not None:
                logger.error("%s", short)
                raise short from error
            raise
        except BaseException as error:
            self._failure = f"interrupted: {error!r}"
            raise
        return written

    def _take(self, written: Sequence[WrittenFrame]) -> None:
        """Sync and apply; if anything fails in between, even by an interrupt, file and state differ until reopening."""
        try:
            self._sync()
            self._apply(written)
        except OSError as error:
            self._failure = f"sync: {error}"
            raise OutcomeUnknown(self.topic.name, self._failure) from error
        except BaseException as error:
            self._failure = f"interrupted: {error!r}"
            raise

    def _apply(self, written: Iterable[WrittenFrame]) -> None:
        index = self._growing()
        for position, header, commit, body in written:
            index.append(position, header, commit.directory)
            self._tail.append(header, commit.directory, body)
            self._end = position + header.bytes
            self._bytes_since_snapshot += header.bytes
            self._state.apply(commit)

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise LogFailed(self.topic.name, self._failure)

    def _sync(self) -> None:
        if self._options.durability == "sync":
            began = time.perf_counter()
            self._files.sync(self._handle)
            self.sync_seconds.observe(time.perf_counter() - began)

    def _undo(self, error: OSError) -> NoReturn:
        """Truncate what a failed write may have left; returns the error to raise."""
        self._cut_off(f"write: {error}", error)
        if error.errno in NO_ROOM:
            raise DiskFull(self.topic.name, str(error)) from error
        if (short := exhausted(f"topic {self.topic.name!r}", error)) is not None:
            logger.error("%s", short)
            raise short from error
        self._failure = f"write: {error}"
        raise OutcomeUnknown(self.topic.name, self._failure) from error

    def _cut_off(self, reason: str, error: BaseException) -> None:
        """Truncate after the last commit; if that fails, the tail is unknown."""
        self._room.forget()
        try:
            self._files.truncate(self._handle, self._end)
            # Once the log has rolled, remains that a power cut brings back would look like damage.
            self._sync()
        except OSError as second:
            self._failure = f"{reason}; truncate: {second}"
            raise OutcomeUnknown(self.topic.name, self._failure) from error

    def _growing(self) -> GrowingIndex:
        index = self._segments[-1].growing
        assert index is not None, "the newest segment always has a growing index"
        return index

    def _is_full(self) -> bool:
        frames = self._growing().frame_count
        return frames > 0 and (self._end >= self._segment_bytes_max or frames >= self._options.segment_frames)

    def _roll(self) -> None:
        """Start a new segment, then seal the old one; if sealing fails, the index is built when it is needed."""
        state = self._state
        header = SegmentHeader(self.topic.id, state.next_number, state.last_time_us, state.end_offsets.copy())
        # In a complete segment, zeros would count as damage.
        self._room.cut(self._handle, self._end)
        if self._options.durability == "os":
            # So that a power cut can only affect the newest segment.
            self._files.sync(self._handle)
        try:
            segment, handle = create_segment(self._files, self._directory, header)
        except Damaged as error:
            self._failure = str(error)
            raise OutcomeUnknown(self.topic.name, self._failure) from error
        old, old_handle = self._segments[-1], self._handle
        self._handle, self._end = handle, self._files_end(header)
        self._segments = (*self._segments, segment)
        self._tail.clear()
        with suppress(OSError):
            self._files.close(old_handle)
        with suppress(OSError):
            self._seal(old)
            snapshot_bytes = 64 * len(state.sources) + 24 * len(state.window)
            if self._bytes_since_snapshot >= SNAPSHOT_GROWTH * snapshot_bytes:
                self._write_snapshot()
        with suppress(OSError):
            self._write_mark(self._end)

    def _seal(self, segment: Segment) -> None:
        segment.seal()
        self._sealed += 1

    def _write_mark(self, bytes_synced: int) -> None:
        """Write the watermark."""
        state = self._state
        ends, gaps = state.end_offsets.tolist(), watermark.as_lists(self.offsets().gaps)
        newest = self._segments[-1].header.first_number
        mark = Watermark(newest, bytes_synced, state.next_number, ends, gaps, self._missing_numbers, self._archived)
        if mark != self._mark:
            watermark.write(self._files, self._directory, mark)
            self._mark = mark

    def _write_synced_mark(self) -> None:
        """Write the watermark in the middle of a segment."""
        self._write_mark(self._end if self._options.durability == "sync" else self._header_bytes())

    def _write_snapshot(self) -> None:
        self._write_synced_mark()
        snapshot.write(self._files, self._directory, self._state)
        self._snapshot_number = self._state.next_number
        self._bytes_since_snapshot = 0

    def _header_bytes(self) -> int:
        return self._files_end(self._segments[-1].header)

    @staticmethod
    def _files_end(header: SegmentHeader) -> int:
        return header_bytes(len(header.base_offsets))

    def pieces(self) -> list[Piece]:
        """The segments as retention sees them, up to what is committed now."""
        with self.writing:
            *complete, newest = self._pieces()
            # Later commits change the state in place.
            return [*complete, replace(newest, end_offsets=newest.end_offsets.copy())]

    def _pieces(self) -> list[Piece]:
        segments = self._segments
        ends = [segment.header for segment in segments[1:]]
        partitions = self._state.partitions
        complete = [
            Piece(self._files.size(segment.path), after.created_us, widened(after.base_offsets, partitions))
            for segment, after in zip(segments[:-1], ends, strict=True)
        ]
        return [*complete, Piece(self._end, self._state.last_time_us, self._state.end_offsets)]

    @staticmethod
    def _segment_of(segments: Sequence[Segment], partition: int, offset: int) -> int:
        """The index of the newest segment that does not start after the offset."""
        return max(0, bisect.bisect_right(segments, offset, key=lambda segment: segment.base_offset(partition)) - 1)

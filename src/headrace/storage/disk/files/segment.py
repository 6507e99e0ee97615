"""A segment: one file of frames after a header with the end offset of each partition at its start.

The header makes a segment self-contained: older ones may be dropped. One thread writes the newest segment; any number
read. A frame's checksum is verified when a process reads the frame for the first time; the frames of a
growing index were written or scanned by this process and count as verified.

A damaged frame affects only itself: everything before and after it can be read, and the error of a read that reaches it
says where to continue.
"""

from __future__ import annotations

import re
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from headrace.core.errors import Damaged, UnknownFormat
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import PARTITIONS_MAX
from headrace.core.messages import join
from headrace.storage.disk.files import frame
from headrace.storage.disk.files.filesystem import FileSystem, write_whole
from headrace.storage.disk.files.index import FrameRun, GrowingIndex, Index, SealedIndex
from headrace.storage.disk.opening.scan import Scanned, scan

MAGIC: Final = b"HRsg"
VERSION: Final = 1

# magic, checksum, version, partitions, topic id, first commit number, time of creation
_HEADER: Final = struct.Struct("<4sIIIQQq")
_CHECKED_FROM: Final = 8

# Complete segments that stay mapped; each costs address space and, while read, page cache.
MAPPED_SEGMENTS_MAX: Final = 2

# Frames with at most this number of rows on average are decoded together: one by one, the overhead would dominate.
_SMALL_FRAME_ROWS: Final = 64
# At most this many bytes of frames are joined at once: a partition may need only one row of a joined frame.
_JOINED_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """Where a segment starts; `created_us` is the time of the newest message before it, or of the topic's creation."""

    topic_id: int
    first_number: int
    created_us: int
    base_offsets: Int64s

    def encode(self) -> bytes:
        """The header as bytes, a multiple of the frames' alignment."""
        values = (VERSION, len(self.base_offsets), self.topic_id, self.first_number, self.created_us)
        content = _HEADER.pack(MAGIC, 0, *values)[_CHECKED_FROM:] + self.base_offsets.astype("<i8").tobytes()
        content += bytes(frame.aligned(_CHECKED_FROM + len(content)) - _CHECKED_FROM - len(content))
        return MAGIC + struct.pack("<I", crc32c(content)) + content

    @classmethod
    def read(cls, files: FileSystem, path: Path) -> SegmentHeader | None:
        """The header of a file, or None if the file does not start with one."""
        start = files.read(path, _HEADER.size)
        if len(start) < _HEADER.size:
            return None
        magic, checksum, version, partitions, topic_id, first_number, created_us = _HEADER.unpack(start)
        length = header_bytes(partitions)
        if magic != MAGIC or partitions > PARTITIONS_MAX:
            return None
        content = files.read(path, length)
        if len(content) < length or crc32c(content[_CHECKED_FROM:]) != checksum:
            return None
        if version > VERSION:
            raise UnknownFormat(str(path), version, VERSION)
        return cls(topic_id, first_number, created_us, np.frombuffer(content, "<i8", partitions, _HEADER.size))


def header_bytes(partitions: int) -> int:
    """The length of a segment header."""
    return frame.aligned(_HEADER.size + 8 * partitions)


def header_partitions(length: int) -> int:
    """The maximum number of partitions in a segment header of this length."""
    return (length - _HEADER.size) // 8


def file_name(first_number: int, ending: str) -> str:
    """The name of a file that belongs to the segment with this first commit."""
    return f"{first_number:020d}.{ending}"


def file_names(names: Iterable[str], ending: str) -> list[str]:
    """The names of this module's files, in order; others are ignored."""
    return sorted(name for name in names if re.fullmatch(rf"[0-9]{{20}}\.{ending}", name))


class Segment:
    """The frames of one file. `index` is growing in the newest segment, else loaded when first needed."""

    def __init__(self, files: FileSystem, path: Path, header: SegmentHeader, index: GrowingIndex | None = None) -> None:
        self.path = path
        self.header = header
        self.growing = index
        self._files = files
        self._sealed: SealedIndex | None = None
        # The last mapping of the file, and how much of it was written by then; zeros may follow.
        self._mapping: tuple[memoryview, int] = (memoryview(b""), 0)
        self._verified: npt.NDArray[np.bool_] = np.zeros(0, bool)

    @property
    def index(self) -> Index:
        """The growing index, the sealed one, or one rebuilt from the log."""
        growing = self.growing
        # An index without frames is falsy, and a rebuilt one would hide what the writer adds to its own.
        return growing if growing is not None else self._sealed or self._load_index()

    def base_offset(self, partition: int) -> int:
        """The first offset of a partition that may be in this segment."""
        return int(self.header.base_offsets[partition]) if partition < len(self.header.base_offsets) else 0

    def read(self, partition: int, offset: int, messages_max: int, bytes_max: int) -> tuple[pa.RecordBatch, Int64s]:
        """Stored rows from `offset` on with their times: at least one, at most `messages_max`, about `bytes_max`."""
        index = self.index
        run = index.run(partition, offset)
        # After the entries: every visible entry has its frame by then.
        frames = index.frames
        skip = self._check_start(run, partition, offset)
        run = _within_limits(run, frames, skip, messages_max, bytes_max)
        run = self._verified_part(run, frames, partition)
        first_row, rows = run.first_row.astype(np.int64), run.rows.astype(np.int64)
        first_row[0] += skip
        rows[0] -= skip
        rows[-1] -= max(0, int(rows.sum()) - messages_max)
        return self._decode(run.frame, first_row, rows, frames), np.repeat(frames["time_us"][run.frame], rows)

    def frames_of(self, numbers: Int64s) -> pa.RecordBatch:
        """All rows of some frames, which are known to be intact, one frame after another."""
        frames = self.index.frames
        rows = frames["rows"][numbers].astype(np.int64)
        return self._decode(numbers, np.zeros(len(numbers), np.int64), rows, frames)

    def damaged(self, numbers: Int64s) -> list[int]:
        """The damaged ones of some frames; each is verified only the first time."""
        if self.growing is not None:
            return []
        frames = self.index.frames
        return [number for number in numbers.tolist() if not self._is_intact(number, frames)]

    def first_at(self, partition: int, time_us: int) -> int | None:
        """The first offset of a partition at or after a time, or None if all messages are older."""
        index = self.index
        frame_number = int(np.searchsorted(index.frames["time_us"], time_us))
        run = index.run_from_frame(partition, frame_number)
        return int(run.first_offset[0]) if len(run) else None

    def time_of(self, partition: int, offset: int) -> int | None:
        """When the message with this offset was written, or None if it is not in this segment."""
        index = self.index
        run = index.run(partition, offset)
        return int(index.frames["time_us"][run.frame[0]]) if run.begins_with(offset) else None

    def seal(self) -> None:
        """Write the index beside the segment, and release the growing one."""
        if self.growing is not None:
            write_whole(self._files, self.index_path, self.growing.encode(), durable=False)
            self._verified = np.ones(len(self.growing.frames["rows"]), bool)
            self.growing = None

    def release(self) -> None:
        """Release the mapped files; running readers keep them until they are done."""
        self._sealed = None
        self._mapping = memoryview(b""), 0

    @property
    def index_path(self) -> Path:
        """The file of the sealed index."""
        return self.path.with_suffix(".index")

    def _load_index(self) -> Index:
        view = self._map()
        sealed = load_index(self._files, self.index_path)
        if sealed is not None and sealed.covered_bytes == len(view):
            if len(self._verified) != len(sealed.frames["rows"]):
                self._verified = np.zeros(len(sealed.frames["rows"]), bool)
            self._sealed = sealed
            return sealed
        self.growing, _ = index_anew(view, self.header, str(self.path), complete_bytes=len(view))
        return self.growing

    def _map(self) -> memoryview:
        try:
            return self._files.map(self.path)
        except FileNotFoundError:
            raise Damaged(str(self.path), 0, "the file does not exist") from None

    def _check_start(self, run: FrameRun, partition: int, offset: int) -> int:
        """The row of the offset in the first entry; an offset without an entry was in a damaged frame."""
        if run.begins_with(offset):
            return offset - int(run.first_offset[0])
        after = run.first_offset[run.first_offset > offset]
        resume = f"the next offset that can be read here is {after[0]}" if len(after) else "nothing follows it here"
        raise Damaged(str(self.path), 0, f"offset {offset} of partition {partition} is missing; {resume}")

    def _verified_part(self, run: FrameRun, frames: Mapping[str, Any], partition: int) -> FrameRun:
        """The run up to the first damaged frame; it is an error only if the run starts with it."""
        if self.growing is not None:
            return run
        for place in np.flatnonzero(~self._verified[run.frame]).tolist():
            number = int(run.frame[place])
            if not self._is_intact(number, frames):
                if place:
                    return run.first(place)
                position = int(frames["position"][number])
                last = int(run.first_offset[0]) + int(run.rows[0]) - 1
                lost = f"offsets {run.first_offset[0]} to {last} of partition {partition}"
                raise Damaged(str(self.path), position, f"the checksum is wrong; {lost} cannot be read")
        return run

    def _is_intact(self, number: int, frames: Mapping[str, Any]) -> bool:
        """Whether a frame is intact; verified only the first time."""
        if not self._verified[number]:
            position = int(frames["position"][number])
            view = self._mapped(position + int(frames["bytes"][number]))
            self._verified[number] = bool(frame.read_intact(view, position, self.header.topic_id, str(self.path)))
        return bool(self._verified[number])

    def _mapped(self, length: int) -> memoryview:
        """The file's content, at least up to `length`."""
        view, written = self._mapping
        if written < length:
            growing = self.growing
            # Read before the file is mapped: what is written meanwhile may or may not be in it.
            covered = growing.covered_bytes if growing is not None else None
            view = self._map()
            self._mapping = view, len(view) if covered is None else covered
        return view

    def _decode(self, numbers: Any, first_row: Int64s, rows: Int64s, frames: Mapping[str, Any]) -> pa.RecordBatch:
        view = self._mapped(int(frames["position"][numbers[-1]]) + int(frames["bytes"][numbers[-1]]))
        starts = frames["position"][numbers] + frames["body"][numbers]
        ends = starts + frames["body_bytes"][numbers]
        bodies = [view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        columns, frame_rows = frames["columns"][numbers], frames["rows"][numbers].astype(np.int64)
        if len(bodies) == 1 or frame_rows.mean() > _SMALL_FRAME_ROWS:
            parts = zip(bodies, columns.tolist(), first_row.tolist(), rows.tolist(), strict=True)
            return join([frame.decode_rows(body, mask).slice(first, count) for body, mask, first, count in parts])
        joined = np.cumsum(frames["body_bytes"][numbers], dtype=np.int64) // _JOINED_BYTES
        changes = np.flatnonzero((columns[1:] != columns[:-1]) | (joined[1:] != joined[:-1])) + 1
        bounds = [0, *changes.tolist(), len(bodies)]
        pieces = []
        for start, end in pairwise(bounds):
            whole = frame.decode_many(bodies[start:end], int(columns[start]))
            pieces.append(_pick_rows(whole, frame_rows[start:end], first_row[start:end], rows[start:end]))
        return join(pieces)


class MappedSegments:
    """The complete segments that stay mapped: the most recently read ones. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._segments: OrderedDict[Segment, None] = OrderedDict()

    def touch(self, segment: Segment) -> None:
        """A segment was read: release those that were not for longest."""
        with self._lock:
            self._segments[segment] = None
            self._segments.move_to_end(segment)
            while len(self._segments) > MAPPED_SEGMENTS_MAX:
                self._segments.popitem(last=False)[0].release()

    def forget(self, segments: Iterable[Segment]) -> None:
        """These were deleted."""
        with self._lock:
            for segment in segments:
                self._segments.pop(segment, None)


def create_segment(files: FileSystem, directory: Path, header: SegmentHeader) -> tuple[Segment, int]:
    """Create the file of a new segment, durably, and open it; after a failure it does not exist.

    If it cannot be deleted, it would hide later writes to the segment before it: that is an error of its own.
    """
    path = directory / file_name(header.first_number, "log")
    handle = files.open(path)
    try:
        files.truncate(handle, 0)
        files.write(handle, 0, [header.encode()])
        files.sync(handle)
        files.sync_directory(directory)
    except OSError as error:
        try:
            files.close(handle)
            files.remove(path)
            files.sync_directory(directory)
        except OSError as second:
            raise Damaged(str(path), 0, f"it could not be begun ({error}) nor removed ({second})") from second
        raise
    return Segment(files, path, header, GrowingIndex()), handle


def index_anew(view: memoryview, header: SegmentHeader, file: str, complete_bytes: int) -> tuple[GrowingIndex, Scanned]:
    """The index of a segment, rebuilt from its frames, and the result of the scan."""
    scanned = scan(view, header_bytes(len(header.base_offsets)), header.topic_id, file, complete_bytes)
    index = GrowingIndex()
    for position, frame_header in scanned.frames:
        index.append(position, frame_header, frame.decode_directory(view, position, frame_header))
    return index, scanned


def load_index(files: FileSystem, path: Path) -> SealedIndex | None:
    """The sealed index in a file, or None if it is missing or damaged."""
    try:
        return SealedIndex.decode(files.map(path))
    except FileNotFoundError:
        return None


def _within_limits(run: FrameRun, frames: Mapping[str, Any], skip: int, messages_max: int, bytes_max: int) -> FrameRun:
    """The entries needed for the limits, up to a gap that a damaged frame left: the last one may exceed the limits."""
    if len(run) == 1:
        return run
    run = run.first(messages_max + 1)
    rows = run.rows.astype(np.int64)
    rows_before = np.cumsum(rows) - rows
    share = frames["bytes"][run.frame] * (rows / np.maximum(frames["rows"][run.frame], 1))
    bytes_before = np.cumsum(share) - share
    is_dense = run.first_offset == run.first_offset[0] + rows_before
    is_wanted = is_dense & (rows_before - skip < messages_max) & (bytes_before < bytes_max)
    return run.first(max(1, int(np.count_nonzero(is_wanted))))


def _pick_rows(batch: pa.RecordBatch, frame_rows: Int64s, first_row: Int64s, rows: Int64s) -> pa.RecordBatch:
    """Some consecutive rows of each of the frames in a joined batch."""
    if np.array_equal(frame_rows, rows):
        return batch
    starts = np.cumsum(frame_rows) - frame_rows + first_row
    places = np.arange(int(rows.sum())) + np.repeat(starts - (np.cumsum(rows) - rows), rows)
    return batch.take(pa.array(places))

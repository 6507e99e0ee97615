"""Finding messages in a segment: by partition and offset, or by time.

Two tables. A frame has its position, time, rows, columns and the place of its record batch; frames are in the order
written. An entry is one partition's rows in one frame. A growing index keeps entries in the order written and looks
from the newest backwards; a sealed one has them sorted by partition and maps its file, so it takes no memory of its
own. Both can be made from the log at any time.

A growing index may be read while one thread appends: arrays are replaced when they grow, and the counts, which are
set last, say how much of them is valid.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from headrace.core.hashes.columns import Int64s
from headrace.core.publish.state import Directory
from headrace.storage.disk.files.frame import Header

MAGIC: Final = b"HRix"
VERSION: Final = 1

Column = npt.NDArray[Any]

FRAME_COLUMNS: Final = {
    "position": "<i8",
    "time_us": "<i8",
    "bytes": "<u4",
    "rows": "<u4",
    "columns": "<u4",
    "body": "<u4",
    "body_bytes": "<u4",
}
ENTRY_COLUMNS: Final = {"first_offset": "<i8", "partition": "<u4", "frame": "<u4", "first_row": "<u4", "rows": "<u4"}

# magic, checksum, version, unused, frames, entries, bytes of the log that are covered
_HEADER: Final = struct.Struct("<4sIIIQQQ")
_CHECKED_FROM: Final = 8
# A growing index is searched backwards in steps of this many entries: a follower of the tail needs one step.
_STEP: Final = 8192


@dataclass(frozen=True, slots=True)
class FrameRun:
    """The entries of one partition from some offset to the segment's end, in order."""

    first_offset: Int64s
    frame: Column
    first_row: Column
    rows: Column

    def __len__(self) -> int:
        return len(self.frame)

    def first(self, count: int) -> FrameRun:
        """The first entries of it."""
        return FrameRun(self.first_offset[:count], self.frame[:count], self.first_row[:count], self.rows[:count])

    def begins_with(self, offset: int) -> bool:
        """Whether its first entry holds this offset; the entry may be lost to damage."""
        return len(self) > 0 and bool(self.first_offset[0] <= offset < self.first_offset[0] + self.rows[0])


class Index(Protocol):
    """What reading needs of an index."""

    @property
    def frames(self) -> Mapping[str, Column]: ...

    @property
    def entries(self) -> Mapping[str, Column]: ...

    def run(self, partition: int, offset: int) -> FrameRun: ...

    def run_from_frame(self, partition: int, frame: int) -> FrameRun: ...


class GrowingIndex:
    """The index of the segment that is being written."""

    def __init__(self) -> None:
        self._frames = _Table(FRAME_COLUMNS)
        self._entries = _Table(ENTRY_COLUMNS)
        self.frame_count = 0
        self.covered_bytes = 0

    @property
    def frames(self) -> Mapping[str, Column]:
        return self._frames.columns()

    def append(self, position: int, header: Header, directory: Directory) -> None:
        """Add a frame that was written; one entry is set as numbers, which costs far less than as columns."""
        frame, entries = self.frame_count, len(directory.partition)
        # The frame is added first: a reader that sees an entry must find its frame.
        self._frames.append(
            1,
            position=position,
            time_us=header.time_us,
            bytes=header.bytes,
            rows=header.rows,
            columns=header.columns,
            body=header.body,
            body_bytes=header.body_bytes,
        )
        if entries == 1:
            first_row: Any = 0
            first_offset, partition, rows = directory.first_offset[0], directory.partition[0], directory.rows[0]
        else:
            first_row = directory.first_row
            first_offset, partition, rows = directory.first_offset, directory.partition, directory.rows
        self._entries.append(
            entries, first_offset=first_offset, partition=partition, frame=frame, first_row=first_row, rows=rows
        )
        self.frame_count = frame + 1
        self.covered_bytes = position + header.bytes

    def run(self, partition: int, offset: int) -> FrameRun:
        """The entries that hold `offset` and all after it."""
        entries = self._entries.columns()
        found: list[Int64s] = []
        end = len(entries["partition"])
        while end > 0:
            start = max(0, end - _STEP)
            places = start + np.flatnonzero(entries["partition"][start:end] == partition)
            found.insert(0, places)
            if len(places) and entries["first_offset"][places[0]] <= offset:
                break
            end = start
        places = np.concatenate(found) if found else np.zeros(0, np.int64)
        skip = np.searchsorted(entries["first_offset"][places], offset, side="right") - 1
        return _run(entries, places[max(int(skip), 0) :])

    def run_from_frame(self, partition: int, frame: int) -> FrameRun:
        """The entries in this frame and all after it."""
        entries = self._entries.columns()
        start = int(np.searchsorted(entries["frame"], np.uint32(frame)))
        return _run(entries, start + np.flatnonzero(entries["partition"][start:] == partition))

    @property
    def entries(self) -> Mapping[str, Column]:
        return self._entries.columns()

    def encode(self) -> list[Any]:
        """The sealed form as buffers."""
        entries = self._entries.columns()
        order = np.argsort(entries["partition"].astype(np.uint16), kind="stable")
        columns = [*self.frames.values(), *(column[order] for column in entries.values())]
        content = b"".join(_padded(column) for column in columns)
        unchecked = _HEADER.pack(MAGIC, 0, VERSION, 0, self.frame_count, len(order), self.covered_bytes)
        checksum = crc32c(content, crc32c(unchecked[_CHECKED_FROM:]))
        return [_HEADER.pack(MAGIC, checksum, VERSION, 0, self.frame_count, len(order), self.covered_bytes), content]


class SealedIndex:
    """The index of a segment that is complete, over the bytes of its file."""

    def __init__(self, frames: dict[str, Column], entries: dict[str, Column], covered_bytes: int) -> None:
        self.frames: Mapping[str, Column] = frames
        self.entries: Mapping[str, Column] = entries
        self.covered_bytes = covered_bytes

    @classmethod
    def decode(cls, view: memoryview) -> SealedIndex | None:
        """The index in these bytes, or None if they are not one."""
        if len(view) < _HEADER.size:
            return None
        magic, checksum, version, _, frames, entries, covered = _HEADER.unpack_from(view)
        if magic != MAGIC or version != VERSION or crc32c(view[_CHECKED_FROM:]) != checksum:
            return None
        frame_columns, position = _columns(view, _HEADER.size, FRAME_COLUMNS, frames)
        entry_columns, _ = _columns(view, position, ENTRY_COLUMNS, entries)
        return cls(frame_columns, entry_columns, covered)

    def run(self, partition: int, offset: int) -> FrameRun:
        """The entries that hold `offset` and all after it."""
        start, end = self._bounds(partition)
        offsets = self.entries["first_offset"][start:end]
        skip = int(np.searchsorted(offsets, offset, side="right")) - 1
        return _run(self.entries, slice(start + max(skip, 0), end))

    def run_from_frame(self, partition: int, frame: int) -> FrameRun:
        """The entries in this frame and all after it."""
        start, end = self._bounds(partition)
        skip = int(np.searchsorted(self.entries["frame"][start:end], np.uint32(frame)))
        return _run(self.entries, slice(start + skip, end))

    def _bounds(self, partition: int) -> tuple[int, int]:
        # Searched with the column's own type: for any other, numpy would convert the whole column first.
        start, end = np.searchsorted(self.entries["partition"], np.array([partition, partition + 1], np.uint32))
        return int(start), int(end)


class _Table:
    """Columns that grow together at their end."""

    def __init__(self, kinds: dict[str, str]) -> None:
        self._columns: dict[str, Column] = {name: np.zeros(0, kind) for name, kind in kinds.items()}
        self._count = 0

    def columns(self) -> dict[str, Column]:
        count = self._count
        return {name: column[:count] for name, column in self._columns.items()}

    def append(self, count: int, **values: Any) -> None:
        end = self._count + count
        for name, column in self._columns.items():
            if end > len(column):
                column = np.concatenate([column, np.zeros(max(end, 64), column.dtype)])
                self._columns[name] = column
            if count == 1:
                column[self._count] = values[name]
            else:
                column[self._count : end] = values[name]
        self._count = end


def end_offsets(base: Int64s, indexes: Sequence[Index]) -> Int64s:
    """Where each partition ends that began at `base` and has the entries of these indexes."""
    partition = np.concatenate([index.entries["partition"] for index in indexes])
    end = np.concatenate([index.entries["first_offset"] + index.entries["rows"] for index in indexes])
    ends = np.zeros(max(len(base), int(partition.max(initial=0)) + 1), np.int64)
    ends[: len(base)] = base
    np.maximum.at(ends, partition, end)
    return ends


def _run(entries: Mapping[str, Column], places: Any) -> FrameRun:
    return FrameRun(*(entries[name][places] for name in ("first_offset", "frame", "first_row", "rows")))


def _padded(column: Column) -> bytes:
    data = column.tobytes()
    return data + bytes(-len(data) % 8)


def _columns(view: memoryview, position: int, kinds: dict[str, str], count: int) -> tuple[dict[str, Column], int]:
    columns = {}
    for name, kind in kinds.items():
        columns[name] = np.frombuffer(view, kind, count, position)
        length = columns[name].nbytes
        position += length + -length % 8
    return columns, position

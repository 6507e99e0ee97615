"""Checks the log of one topic: every frame, index and snapshot of its directory.

A frame may have a correct checksum and still be wrong: its content is compared with its header, and its offsets and
commit number with the frames before it. Damage is never made worse: a repair touches only what can be rebuilt from the
frames, or was never acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from headrace.core.errors import Damaged
from headrace.core.hashes.columns import Int64s
from headrace.core.publish.state import Directory
from headrace.core.reports.store_check import Finding, Kind, Repair, StoreReport
from headrace.core.text import counted
from headrace.core.topics.offsets import widened
from headrace.storage.disk.files import frame, snapshot, watermark
from headrace.storage.disk.files.filesystem import FileSystem, write_whole
from headrace.storage.disk.files.index import GrowingIndex, SealedIndex
from headrace.storage.disk.files.segment import SegmentHeader, file_name, header_bytes, load_index
from headrace.storage.disk.files.watermark import Watermark
from headrace.storage.disk.opening import inspection
from headrace.storage.disk.opening.scan import Scanned, is_room, scan
from headrace.storage.ranges import OffsetRange


@dataclass(slots=True)
class _Reached:
    """Where the frames so far end: the next commit number, and the end of each partition."""

    number: int
    ends: Int64s


class LogCheck:
    """The check of one topic's directory. `ends` is set if all of it was read without damage, `mark` if it has one."""

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        topic_id: int,
        partitions: int | None,
        repair: bool,
        report: StoreReport,
    ) -> None:
        self._files = files
        self._directory = directory
        self._topic_id = topic_id
        self._partitions = partitions
        self._repair = repair
        self._report = report
        self._reached: _Reached | None = None
        self._is_damaged = False
        self._indexes: list[Path] = []
        self.mark: Watermark | None = None
        self.ends: Int64s | None = None

    def run(self) -> None:
        """Check everything in the directory."""
        listed = inspection.list_files(self._files, self._directory)
        logs, self._indexes = listed.logs, listed.indexes
        self._check_watermark()
        for path in listed.unfinished:
            what = "it was being written when a process died"
            self._find(path, 0, "leftover", what, self._removed(path))
        for path in listed.lone_indexes:
            self._find(path, 0, "leftover", "an index without its segment", self._removed(path))
        if not logs:
            self._find(self._directory, 0, "damage", inspection.NO_SEGMENT)
            return
        for path in logs:
            self._check_segment(path, is_newest=path == logs[-1])
        self._check_newest(logs[-1])
        self._check_snapshots(int(logs[0].stem))
        if self._reached is not None and not self._is_damaged:
            self.ends = widened(self._reached.ends, self._partitions or 0)

    # The watermark

    def _check_watermark(self) -> None:
        path = self._directory / watermark.NAME
        try:
            self.mark = watermark.read(self._files, self._directory)
        except Damaged as error:
            self._find(path, 0, "damage", error.reason, self._removed(path))
        for gap in () if self.mark is None else self.mark.skipped:
            what = f"offsets {gap.first} to {gap.end - 1} of partition {gap.partition} were lost, and are skipped"
            self._find(path, 0, "gap", what)

    def _check_newest(self, newest: Path) -> None:
        """The log must reach the watermark."""
        mark = self.mark
        if mark is None or self._reached is None:
            return
        if inspection.is_missing(newest, mark):
            self._find(self._directory / file_name(mark.segment, "log"), 0, "damage", inspection.NEWEST_MISSING)
        ends, marked = _alike(self._reached.ends, np.array(mark.ends, np.int64))
        offsets = OffsetRange(np.zeros(len(ends), np.int64), marked, mark.skipped)
        raised = offsets.past_gaps(ends)
        for partition in np.flatnonzero(raised < marked).tolist():
            what = f"partition {partition} ends at {ends[partition]}, and ended at {marked[partition]} before"
            self._find(self._directory, 0, "damage", what)
        self._reached.ends = raised
        self._reached.number = dict(mark.missing_numbers).get(self._reached.number, self._reached.number)

    def _is_gap(self, partition: int, expected: int, first: int) -> bool:
        """Whether the offsets between are known to be lost."""
        if self.mark is None:
            return False
        nowhere = np.zeros(0, np.int64)
        return OffsetRange(nowhere, nowhere, self.mark.skipped).readable(partition, expected) == first

    # Segments

    def _check_segment(self, path: Path, is_newest: bool) -> None:
        self._report.segments += 1
        view = self._files.map(path)
        self._report.bytes += len(view)
        header = inspection.header_of(self._files, path, self._topic_id)
        sealed = load_index(self._files, path.with_suffix(".index"))
        if header is None:
            if is_newest and self._was_never_used(path, sealed):
                what = "a new segment without messages, which was being created when a process died"
                self._find(path, 0, "leftover", what, self._removed(path))
                return
            self._find(path, 0, "damage", "the segment's header is wrong")
        covered = inspection.complete_bytes(path, sealed, self.mark)
        if covered > len(view):
            self._find(path, len(view), "damage", inspection.shortened(covered))
        complete = min(covered, len(view)) if is_newest else len(view)
        start = frame.ALIGNMENT if header is None else header_bytes(len(header.base_offsets))
        scanned = scan(view, start, self._topic_id, str(path), complete)
        self._check_start(path, header)
        self._check_frames(path, view, scanned)
        self._check_index(path, sealed, view, scanned, is_newest)
        if scanned.end < len(view) and not is_room(view, scanned.end):
            self._check_tail(path, scanned.end, len(view))

    def _was_never_used(self, path: Path, index: SealedIndex | None) -> bool:
        """Whether nothing in a segment without a header was acknowledged."""
        if self._partitions is None or self._reached is None or inspection.was_used(path, index, self.mark):
            return False
        return inspection.is_empty(self._files, path, self._topic_id, self._partitions)

    def _check_start(self, path: Path, header: SegmentHeader | None) -> None:
        """A segment must start where the one before it ended."""
        if header is None:
            return
        if header.first_number != int(path.stem):
            self._find(path, 0, "damage", f"its header is that of the segment from commit {header.first_number} on")
        if self._partitions is not None and len(header.base_offsets) > self._partitions:
            count = len(header.base_offsets)
            self._find(path, 0, "damage", f"it has {counted(count, 'partition')}, the catalog has {self._partitions}")
        if self._reached is None:
            self._reached = _Reached(header.first_number, header.base_offsets.copy())
            return
        if header.first_number != self._reached.number:
            self._missing_commits(path, 0, header.first_number)
        base, ends = _alike(header.base_offsets, self._reached.ends)
        for partition in np.flatnonzero(base != ends).tolist():
            self._misplaced(path, 0, partition, int(base[partition]), int(ends[partition]))
        self._reached = _Reached(header.first_number, base)

    def _check_frames(self, path: Path, view: memoryview, scanned: Scanned) -> None:
        for damage in inspection.damage_of(path, scanned):
            self._find(path, damage.position, "damage", damage.reason)
        for position, found in scanned.frames:
            self._report.frames += 1
            self._report.messages += found.rows
            try:
                directory = _checked_content(view, position, found)
            except (ValueError, pa.ArrowException, msgspec.MsgspecError, OSError) as error:
                self._find(path, position, "damage", f"the checksum is right and the content is not: {error}")
                continue
            if self._reached is None:
                self._reached = _Reached(found.number, np.zeros(0, np.int64))
                self._reached.ends = _beginning(directory)
            if found.number != self._reached.number:
                self._missing_commits(path, position, found.number)
            self._reached.number = found.number + 1
            self._check_offsets(path, position, directory)

    def _check_offsets(self, path: Path, position: int, directory: Directory) -> None:
        assert self._reached is not None
        if len(directory.partition) and int(directory.partition[-1]) >= len(self._reached.ends):
            self._reached.ends = widened(self._reached.ends, int(directory.partition[-1]) + 1)
        expected = self._reached.ends[directory.partition]
        for place in np.flatnonzero(expected != directory.first_offset).tolist():
            first, partition = int(directory.first_offset[place]), int(directory.partition[place])
            self._misplaced(path, position, partition, first, int(expected[place]))
        self._reached.ends[directory.partition] = directory.first_offset + directory.rows

    def _missing_commits(self, path: Path, position: int, number: int) -> None:
        assert self._reached is not None
        expected = self._reached.number
        if self.mark is not None and (expected, number) in self.mark.missing_numbers:
            return
        missing = f"commits {expected} to {number - 1} are missing before it"
        self._find(path, position, "damage", missing if number > expected else f"commit {number} exists twice")

    def _misplaced(self, path: Path, position: int, partition: int, first: int, expected: int) -> None:
        if self._is_gap(partition, expected, first):
            return
        missing = f"offsets {expected} to {first - 1} of partition {partition} are missing before it"
        twice = f"offsets {first} to {expected - 1} of partition {partition} exist twice"
        self._find(path, position, "damage", missing if first > expected else twice)

    def _check_tail(self, path: Path, end: int, length: int) -> None:
        """A torn tail, which was never acknowledged; not touched if there is damage."""
        what = f"{length - end} bytes of a commit that was being written when a process died"
        if self._is_damaged or not self._repair:
            self._find(path, end, "leftover", what, "none" if self._is_damaged else "possible")
            return
        handle = self._files.open(path)
        try:
            self._files.truncate(handle, end)
            self._files.sync(handle)
        finally:
            self._files.close(handle)
        self._find(path, end, "leftover", what, "done")

    # Indexes

    def _check_index(
        self, path: Path, sealed: SealedIndex | None, view: memoryview, scanned: Scanned, is_newest: bool
    ) -> None:
        index_path = path.with_suffix(".index")
        if index_path not in self._indexes:
            if not is_newest:
                what = "a complete segment without its index, which is rebuilt when it is needed"
                self._find(index_path, 0, "leftover", what, self._indexed(index_path, view, scanned))
            return
        if sealed is None:
            repair = self._removed(index_path) if is_newest else self._indexed(index_path, view, scanned)
            self._find(index_path, 0, "damage", "the index's checksum is wrong", repair)
            return
        # If the segment has a hole, the index has information that the frames lack, and must be kept.
        if scanned.holes or sealed.covered_bytes > len(view):
            return
        rebuilt = _index(view, scanned, sealed.covered_bytes)
        is_complete = is_newest or sealed.covered_bytes == len(view)
        if b"".join(rebuilt.encode()) != bytes(self._files.map(index_path)) or not is_complete:
            repair = self._removed(index_path) if is_newest else self._indexed(index_path, view, scanned)
            self._find(index_path, 0, "damage", "the index is not that of its segment", repair)

    def _indexed(self, index_path: Path, view: memoryview, scanned: Scanned) -> Repair:
        if not self._repair:
            return "possible"
        write_whole(self._files, index_path, _index(view, scanned, len(view)).encode(), durable=True)
        return "done"

    # Snapshots

    def _check_snapshots(self, first_number: int) -> None:
        """Snapshots must be intact, and one must cover everything before the oldest segment."""
        covered = 0
        for name in snapshot.names(self._files, self._directory):
            path = self._directory / name
            number = snapshot.next_number(self._files, path)
            if number is None:
                self._find(path, 0, "damage", inspection.WRONG_SNAPSHOT, self._removed(path))
            elif number != int(path.stem):
                self._find(path, 0, "damage", f"it is the snapshot of commit {number}", self._removed(path))
            elif self._reached is not None and number > self._reached.number:
                what = f"it knows commits up to {number - 1}, the log ends with {self._reached.number - 1}"
                self._find(path, 0, "damage", what)
            else:
                covered = max(covered, number)
        if covered < first_number:
            self._find(self._directory, 0, "damage", inspection.forgotten_sources(covered, first_number))

    # Findings

    def _removed(self, path: Path) -> Repair:
        if not self._repair:
            return "possible"
        self._files.remove(path)
        self._files.sync_directory(self._directory)
        return "done"

    def _find(self, path: Path, position: int, kind: Kind, what: str, repair: Repair = "none") -> None:
        self._is_damaged = self._is_damaged or (kind == "damage" and repair != "done")
        self._report.findings.append(Finding(str(path), position, kind, what, repair))


def _checked_content(view: memoryview, position: int, header: frame.Header) -> Directory:
    """The directory of a frame, after its content was checked."""
    directory = frame.decode_directory(view, position, header)
    frame.decode_keys(view, position, header)
    frame.decode_resets(view, position, header)
    body = view[position + header.body : position + header.body + header.body_bytes]
    rows = frame.decode_rows(body, header.columns)
    rows.validate(full=True)
    if not rows.num_rows == header.rows == int(directory.rows.sum()):
        raise ValueError(f"{rows.num_rows} rows, {header.rows} in the header, {directory.rows.sum()} in the directory")
    if np.any(np.diff(directory.partition) <= 0):
        raise ValueError("its partitions do not ascend")
    return directory


def _index(view: memoryview, scanned: Scanned, covered_bytes: int) -> GrowingIndex:
    """The index of the frames in the first bytes of a segment."""
    index = GrowingIndex()
    for position, header in scanned.frames:
        if position < covered_bytes:
            index.append(position, header, frame.decode_directory(view, position, header))
    return index


def _beginning(directory: Directory) -> Int64s:
    """The offsets before a frame, if nothing else is known."""
    ends = np.zeros(int(directory.partition.max(initial=-1)) + 1, np.int64)
    ends[directory.partition] = directory.first_offset
    return ends


def _alike(one: Int64s, other: Int64s) -> tuple[Int64s, Int64s]:
    """Two arrays of offsets, padded to the same number of partitions with 0."""
    return widened(one, len(other)), widened(other, len(one))

"""A manifest as readers need it: from an offset or a time to a file and a row, by binary search.

Immutable, so thread-safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.core.archive.manifest import ArchiveFile
from headrace.core.hashes.columns import Int64s
from headrace.core.topics.offsets import widened
from headrace.storage.archive.manifest import TopicManifest
from headrace.storage.ranges import Gap, OffsetRange, offsets_past

_COLUMNS: Final = 8


@dataclass(frozen=True, slots=True)
class FoundRange:
    """A range with rows of a partition: its offsets and times, its file, and its first row there."""

    first_offset: int
    end_offset: int
    first_us: int
    last_us: int
    file: ArchiveFile
    row: int


class ArchiveView:
    """The live files of a topic."""

    def __init__(self, manifest: TopicManifest) -> None:
        self.manifest = manifest
        files = manifest.files
        rows: list[tuple[int, ...]] = []
        for place, file in enumerate(files):
            row = 0
            for each in file.ranges:
                rows.append((*each, place, row))
                row += each.rows
        table = np.array(rows, np.int64).reshape(len(rows), _COLUMNS)
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        self._partition, self._first, self._end, self._rows = (np.ascontiguousarray(table[:, i]) for i in range(4))
        self._first_us, self._last_us, self._file, self._row = (np.ascontiguousarray(table[:, i]) for i in range(4, 8))
        # The partitions in the archive, with the first and the last range of each; and the ranges without rows.
        self._partitions, self._oldest = np.unique(self._partition, return_index=True)
        self._newest = np.append(self._oldest[1:], len(rows)) - 1
        self._lost = np.flatnonzero(self._rows == 0)

    def ends(self, partitions: int) -> Int64s:
        """By partition the offset up to which the archive is complete."""
        return widened(self.manifest.ends, partitions)

    def start(self, partition: int) -> int:
        """The offset below which everything has expired."""
        low, high = self._bounds(partition)
        ends = self.manifest.ends
        return int(self._first[low]) if low < high else int(ends[partition]) if partition < len(ends) else 0

    def has_lost(self, partition: int, first: int, end: int) -> bool:
        """Whether the log had lost some of these offsets before they were archived."""
        lost = self._lost[self._partition[self._lost] == partition]
        return bool(np.any((self._first[lost] < end) & (self._end[lost] > first)))

    def find(self, partition: int, offset: int) -> FoundRange | None:
        """The range with this offset, or None."""
        low, high = self._bounds(partition)
        place = low + int(np.searchsorted(self._first[low:high], offset, side="right")) - 1
        if place < low or offset >= self._end[place] or not self._rows[place]:
            return None
        return self._found(place)

    def find_time(self, partition: int, time_us: int) -> FoundRange | None:
        """The first range with a message at or after a time, or None."""
        low, high = self._bounds(partition)
        is_later = (self._last_us[low:high] >= time_us) & (self._rows[low:high] > 0)
        places = np.flatnonzero(is_later)
        return self._found(low + int(places[0])) if len(places) else None

    def combined(self, local: OffsetRange) -> OffsetRange:
        """The offsets that readers see: those of the log and those before it in the archive."""
        numbers = self._partitions[self._partitions < len(local.end)]
        if not len(numbers):
            return local
        count = len(numbers)
        start = local.start.copy()
        start[numbers] = np.minimum(start[numbers], self._first[self._oldest[:count]])
        # What the log has, it has; before it, the archive lacks what was lost, or deleted while it was off.
        lost = self._lost[self._partition[self._lost] < len(local.end)]
        absent = [
            (self._partition[lost], self._first[lost], self._end[lost]),
            (numbers, self._end[self._newest[:count]], local.start[numbers]),
        ]
        gaps = list(local.gaps)
        for where, begin, end in absent:
            before = np.minimum(end, local.start[where])
            columns = (column[begin < before].tolist() for column in (where, begin, before))
            gaps += [Gap(*each) for each in zip(*columns, strict=True)]
        return offsets_past(start, local.end, _joined(sorted(gaps)), local.deleted_before)

    def _bounds(self, partition: int) -> tuple[int, int]:
        low, high = np.searchsorted(self._partition, [partition, partition + 1])
        return int(low), int(high)

    def _found(self, place: int) -> FoundRange:
        return FoundRange(
            int(self._first[place]),
            int(self._end[place]),
            int(self._first_us[place]),
            int(self._last_us[place]),
            self.manifest.files[int(self._file[place])],
            int(self._row[place]),
        )


def _joined(gaps: list[Gap]) -> list[Gap]:
    """Gaps that touch each other as one."""
    joined: list[Gap] = []
    for gap in gaps:
        if joined and joined[-1].partition == gap.partition and joined[-1].end >= gap.first:
            joined[-1] = joined[-1]._replace(end=max(joined[-1].end, gap.end))
        else:
            joined.append(gap)
    return joined

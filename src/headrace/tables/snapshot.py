"""What the table of a topic is made of at one moment, for every engine that reads it.

    archive(topic) ──► files ── rows below `complete` ──► the engine's own Parquet reader ──┐
                         └───── offsets from `complete` on ──► the broker ──────────────────┴──► one table

The archive's snapshot names the files first and the ends of the partitions after them, so every offset is in exactly
one of the two: what is archived meanwhile is still read from the broker, what is published meanwhile is in neither.
Values only; docs/tables.md says why the files and the tail stay readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.core.archive.manifest import ArchiveFile, ArchiveRange, ArchiveSnapshot
from headrace.core.errors import StoreUnavailable

# By partition: the first offset, and the one after the last.
Bounds = Mapping[int, tuple[int, int]]
_NOTHING: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """The rows of a topic between two offsets of each partition.

    files: those that have any of these rows.
    clips: the bounds of partitions of which the files have more than is asked for.
    tail: what only the broker has.
    """

    archive: ArchiveSnapshot
    files: list[ArchiveFile]
    clips: dict[int, tuple[int, int]]
    tail: dict[int, tuple[int, int]]

    @property
    def url(self) -> str:
        """What the paths of the files are relative to."""
        if self.archive.url is None:
            rule = f"it has messages of topic {self.archive.topic!r}, and this server has no archive: set archive.url"
            raise StoreUnavailable("archive", rule)
        return self.archive.url


def table_snapshot(archive: ArchiveSnapshot, bounds: Bounds | None = None) -> TableSnapshot:
    """The table of a topic, or of a part of it; an offset that the topic no longer has is in no table."""
    wanted = dict(archive.offsets)
    if bounds is not None:
        present = {partition: archive.offsets.get(partition, _NOTHING) for partition in bounds}
        wanted = {of: (max(bounds[of][0], first), min(bounds[of][1], end)) for of, (first, end) in present.items()}
    ranges = {file.path: [part for part in file.ranges if part.rows] for file in archive.files}
    files = [file for file in archive.files if any(_rows_within(part, wanted) for part in ranges[file.path])]
    clips = {
        part.partition: wanted.get(part.partition, _NOTHING)
        for file in files
        for part in ranges[file.path]
        if _rows_within(part, wanted) < part.rows
    }
    unarchived = {of: (max(start, archive.complete.get(of, 0)), end) for of, (start, end) in wanted.items()}
    return TableSnapshot(archive, files, clips, {of: each for of, each in unarchived.items() if each[0] < each[1]})


def _rows_within(part: ArchiveRange, bounds: Bounds) -> int:
    """How many offsets of a range of a file are within the bounds of its partition."""
    start, end = bounds.get(part.partition, _NOTHING)
    return max(0, min(part.end_offset, end) - max(part.first_offset, start))

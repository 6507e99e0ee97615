"""What the table of a topic is made of at one moment, for every engine that reads it.

    archive(topic) ──► files ── rows below `complete` ──► the engine's own Parquet reader ──┐
                         └───── offsets from `complete` on ──► the broker ──────────────────┴──► one table

The archive's snapshot names the files first and the ends of the partitions after them, so every offset is in exactly
one of the two: what is archived meanwhile is still read from the broker, what is published meanwhile is in neither.
Values only; docs/TABLES.md says why the files and the tail stay readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.core.archive.manifest import ArchiveFile, ArchiveSnapshot
from headrace.core.errors import StoreUnavailable

# By partition: the first offset, and the one after the last.
Bounds = Mapping[int, tuple[int, int]]


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

    @property
    def rows(self) -> int:
        """How many rows the table has."""
        archived = sum(
            _overlap(part.first_offset, part.end_offset, self.clips.get(part.partition))
            for file in self.files
            for part in file.ranges
            if part.rows
        )
        return archived + sum(end - start for start, end in self.tail.values())


def table_snapshot(archive: ArchiveSnapshot, bounds: Bounds | None = None) -> TableSnapshot:
    """The table of a topic, or of a part of it; an offset that the topic no longer has is in no table."""
    wanted = dict(archive.offsets)
    for partition, (start, end) in ({} if bounds is None else bounds).items():
        first, last = archive.offsets.get(partition, (0, 0))
        wanted[partition] = (max(start, first), min(end, last))
    if bounds is not None:
        wanted = {partition: each for partition, each in wanted.items() if partition in bounds}
    files = [
        file
        for file in archive.files
        if any(part.rows and _overlap(part.first_offset, part.end_offset, wanted.get(part.partition, (0, 0)))
               for part in file.ranges)
    ]  # fmt: skip
    clips = {
        part.partition: wanted.get(part.partition, (0, 0))
        for file in files
        for part in file.ranges
        if part.rows and _overlap(part.first_offset, part.end_offset, wanted.get(part.partition, (0, 0))) < part.rows
    }
    tail = {
        partition: (max(start, archive.complete.get(partition, 0)), end)
        for partition, (start, end) in wanted.items()
        if max(start, archive.complete.get(partition, 0)) < end
    }
    return TableSnapshot(archive, files, clips, tail)


def _overlap(first: int, end: int, bounds: tuple[int, int] | None) -> int:
    """How many offsets of a range are within bounds."""
    if bounds is None:
        return end - first
    return max(0, min(end, bounds[1]) - max(first, bounds[0]))

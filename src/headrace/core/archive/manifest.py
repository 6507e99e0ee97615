"""What the manifest of an archive says: files, the offsets in each, and a snapshot of both.

Plain values, the same in process, in the catalog and over every protocol. docs/tables.md says what they promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class ArchiveRange(NamedTuple):
    """Offsets of one partition in one file, from `first_offset` up to, and without, `end_offset`.

    rows: as many as there are offsets, or 0 if the log no longer had them.
    first_us, last_us: the broker's times of the first and the last message; 0 without rows.
    """

    partition: int
    first_offset: int
    end_offset: int
    rows: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file of an archive; `path` is below the archive's URL, `ranges` are in the order of the rows."""

    path: str
    rows: int
    bytes: int
    checksum: str
    first_us: int
    last_us: int
    ranges: list[ArchiveRange]


@dataclass(frozen=True, slots=True)
class ArchiveSnapshot:
    """The archive of a topic at one moment.

    url: what the paths of the files are relative to; None if the server has no archive.
    files: the live files in the order of their messages.
    complete: by partition the offset below which the archive has every message that the topic still has.
    offsets: start and end offset by partition as readers see them, looked up after the files: never below `complete`.
    value_schema: the schema of the topic's values, if it has one.
    """

    topic: str
    topic_id: int
    url: str | None
    files: list[ArchiveFile]
    complete: dict[int, int]
    offsets: dict[int, tuple[int, int]]
    value_schema: str | None = None


def joined(files: Sequence[ArchiveFile]) -> list[ArchiveRange]:
    """The ranges of consecutive files as one file would have them: those that touch each other are one."""
    ranges = sorted(each for file in files for each in file.ranges)
    merged: list[ArchiveRange] = []
    for each in ranges:
        last = merged[-1] if merged else None
        if last is not None and last.partition == each.partition and bool(last.rows) == bool(each.rows):
            first_us = last.first_us
            merged[-1] = last._replace(
                end_offset=each.end_offset, rows=last.rows + each.rows, first_us=first_us, last_us=each.last_us
            )
        else:
            merged.append(each)
    return merged


def misfits(files: Iterable[ArchiveFile]) -> Iterator[str]:
    """Where the ranges of live files leave a gap, overlap, or do not match their rows."""
    known = [(each, file.path) for file in files for each in file.ranges]
    for each, path in known:
        if each.end_offset <= each.first_offset or each.rows not in (0, each.end_offset - each.first_offset):
            yield f"{path}: the range {tuple(each)} is impossible"
    for (before, path), (after, other) in pairwise(sorted(known)):
        if before.partition != after.partition or before.end_offset == after.first_offset:
            continue
        what = "overlap" if after.first_offset < before.end_offset else "leave a gap"
        yield (
            f"{path} and {other} {what} in partition {after.partition}: the first ends before offset "
            f"{before.end_offset}, the second starts at {after.first_offset}"
        )

"""Decisions of the archiver: what goes into the next file, when to pause, which files are merged or have expired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headrace.core.archive.manifest import ArchiveFile, ArchiveRange
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import (
    ARCHIVE_CATCH_UP_SECONDS,
    ARCHIVE_CORES_MAX,
    ARCHIVE_CORES_MIN,
    ARCHIVE_CORES_STEP,
    ARCHIVE_MERGE_FILES_MAX,
    ARCHIVE_MERGE_FILES_MIN,
    ARCHIVE_SERVER_SHARE,
    ARCHIVE_WAITING_MAX,
    MICROSECONDS,
)
from headrace.core.topics.offsets import widened
from headrace.core.topics.retention import NOTHING_DELETED, Piece, is_older


def unarchived(pieces: Sequence[Piece], archived: Int64s) -> list[Piece]:
    """The segments that have messages above the archived offsets."""
    archived = widened(archived, max((len(piece.end_offsets) for piece in pieces), default=0))
    return [piece for piece in pieces if np.any(widened(piece.end_offsets, len(archived)) > archived)]


def choose_cut(
    pieces: Sequence[Piece], archived: Int64s, cut_us: int, after_seconds: int, file_bytes: int, now_us: int
) -> Int64s | None:
    """Up to which offsets the next file goes, or None while it is too early for one.

    Cuts are at the ends of segments, except the last, which is at the end of the log. A file is due when there is
    enough for one, or some time after the last cut; also if the clock was set back behind that.
    """
    ahead = unarchived(pieces, archived)
    total_bytes = 0
    for place, piece in enumerate(ahead):
        if total_bytes and total_bytes + piece.bytes > file_bytes:
            return ahead[place - 1].end_offsets
        total_bytes += piece.bytes
    is_due = total_bytes >= file_bytes or not cut_us <= now_us < cut_us + after_seconds * MICROSECONDS
    return ahead[-1].end_offsets if ahead and is_due else None


class Work(NamedTuple):
    """What the thread of the archiver did between two pauses.

    cpu_seconds: its CPU time.
    waiting_seconds: how long it was ready to run, and all cores had others to run; None if the system does not say.
    elapsed_seconds: how long it took.
    server_cores: how many cores the other threads of the server used, during this and the pause before.
    """

    cpu_seconds: float
    waiting_seconds: float | None
    elapsed_seconds: float
    server_cores: float


def next_cores(cores: float, work: Work, late_seconds: float, most: float = ARCHIVE_CORES_MAX) -> float:
    """How much of a core the archiver takes from now on, while messages are being published.

    Half of it if its thread had to wait for a core, since publishers have to wait then as well, else a little more.
    """
    least = max(ARCHIVE_SERVER_SHARE * work.server_cores, ARCHIVE_CORES_MIN)
    least *= 1 << int(min(late_seconds // ARCHIVE_CATCH_UP_SECONDS, 16))
    if work.waiting_seconds is not None:
        is_busy = work.waiting_seconds > ARCHIVE_WAITING_MAX * (work.cpu_seconds + work.waiting_seconds)
        cores = cores / 2 if is_busy else cores + ARCHIVE_CORES_STEP
    return min(max(min(cores, most), least), 1.0)


def pause_seconds(work: Work, cores: float) -> float:
    """How long the archiver pauses after some work, to take that much of a core."""
    return max(work.cpu_seconds / cores - work.elapsed_seconds, 0.0)


class Span(NamedTuple):
    """Offsets of one partition that belong into a file; without `has_rows` the log no longer has their messages."""

    partition: int
    first_offset: int
    end_offset: int
    has_rows: bool


def spans(archived: Int64s, cut: Int64s, start: Int64s, gaps: Sequence[tuple[int, int, int]]) -> list[Span]:
    """What the file up to a cut has, by partition and offset; `start` and `gaps` are those of the log."""
    partitions = max(len(archived), len(cut))
    archived, cut, start = (widened(each, partitions) for each in (archived, cut, start))
    found: list[Span] = []
    for partition in np.flatnonzero(cut > archived).tolist():
        position, end = int(archived[partition]), int(cut[partition])
        lost = [(position, int(start[partition]))]
        lost += [(first, after) for number, first, after in gaps if number == partition]
        for first, after in lost:
            first, after = max(first, position), min(after, end)
            if first < after:
                found += [Span(partition, position, first, True)] if position < first else []
                found.append(Span(partition, first, after, False))
                position = after
        found += [Span(partition, position, end, True)] if position < end else []
    return found


def choose_merge(sizes: Sequence[int], small_bytes: int, file_bytes: int) -> slice | None:
    """Which consecutive files to merge, by their sizes in bytes, or None.

    Only small files, several at once, and none that is larger than the others together: so a message is written
    again only a few times, however many files there were.
    """
    start = 0
    while start < len(sizes):
        stop, total = start, 0
        while stop < len(sizes) and sizes[stop] < small_bytes and total + sizes[stop] <= file_bytes:
            if stop - start == ARCHIVE_MERGE_FILES_MAX:
                break
            total += sizes[stop]
            stop += 1
        if stop - start >= ARCHIVE_MERGE_FILES_MIN and 2 * max(sizes[start:stop]) <= total:
            return slice(start, stop)
        start += 1
    return None


def expired(
    files: Sequence[ArchiveFile],
    retention_seconds: int | None,
    start: Int64s,
    held: Int64s | None,
    now_us: int,
    deleted_before: Int64s = NOTHING_DELETED,
) -> int:
    """How many of the oldest files are past retention, and read by all important groups (`held`, as of retention).

    Files that have only messages below `deleted_before` are expired, whatever their age and whoever has read them.

    A file stays while the log has any of its messages (`start` is that of the log): so the archive has everything
    below its end that readers see, and a table of files and tail is complete.
    """
    for count, file in enumerate(files):
        if len(deleted_before) and not any(_is_held(each, deleted_before) for each in file.ranges):
            continue
        is_held = any(_is_held(each, start) or _is_held(each, held) for each in file.ranges)
        if is_held or retention_seconds is None or not is_older(file.last_us, retention_seconds, now_us):
            return count
    return len(files)


def _is_held(each: ArchiveRange, held: Int64s | None) -> bool:
    if held is None or not each.rows:
        return False
    # Nothing was read of a partition that was added after `held` was computed.
    return each.partition >= len(held) or each.end_offset > int(held[each.partition])

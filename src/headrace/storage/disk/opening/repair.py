"""Repair: reconstructs a segment's header, and bounds the offsets that a damaged frame may have held.

A header has the end offsets at the start of its segment, which frames and neighbouring segments imply too. The content
of a damaged frame of the newest segment is known from its index, if it has one. Otherwise only a bound is known, and
the offsets up to it are skipped: an offset that was acknowledged must never be given to another message. A torn tail is
not damage: `recovery` cuts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from headrace.core.hashes.columns import Int64s
from headrace.core.publish.state import Directory
from headrace.core.topics.offsets import widened
from headrace.storage.catalog import TopicRecord
from headrace.storage.disk.files import frame
from headrace.storage.disk.files.filesystem import FileSystem
from headrace.storage.disk.files.index import GrowingIndex, SealedIndex, end_offsets
from headrace.storage.disk.files.segment import Segment, SegmentHeader, header_partitions
from headrace.storage.disk.opening.scan import Hole, Scanned, scan

# Every row has at least the offset of its value in the record batch.
ROW_BYTES_MIN: Final = 4
_UNKNOWN: Final = -1


def repaired_header(
    files: FileSystem, path: Path, topic: TopicRecord, before: Segment | None, after: SegmentHeader | None
) -> SegmentHeader | None:
    """The reconstructed header of a segment, or None if there is too little information.

    Its time is that of the first frame, which is slightly late, so nothing is dropped too early.
    """
    view = files.map(path)
    frames = scan(view, frame.ALIGNMENT, topic.id, str(path)).frames
    if not frames:
        return None
    first_number = int(path.stem)
    if before is not None:
        base = widened(end_offsets(before.header.base_offsets, [before.index]), topic.partitions)
    elif first_number == 0:
        base = np.zeros(topic.partitions, np.int64)
    else:
        directories = [frame.decode_directory(view, position, header) for position, header in frames]
        base = _first_offsets(directories, after, topic.partitions)
    if np.any(base == _UNKNOWN):
        return None
    position, first = frames[0]
    partitions = min(topic.partitions, header_partitions(position))
    return SegmentHeader(topic.id, first_number, first.time_us, base[:partitions])


def _first_offsets(directories: Sequence[Directory], after: SegmentHeader | None, partitions: int) -> Int64s:
    """The offsets before these frames; for partitions without messages in them, those of the next segment."""
    partitions = max(partitions, *(int(directory.partition.max(initial=0)) + 1 for directory in directories))
    base = np.full(partitions, _UNKNOWN, np.int64) if after is None else widened(after.base_offsets, partitions)
    for directory in reversed(directories):
        base[directory.partition] = directory.first_offset
    return base


def raise_past_holes(ends: Int64s, scanned: Scanned, index: GrowingIndex, sealed: SealedIndex | None) -> None:
    """Raise the ends of the partitions of which a damaged frame may have held the last messages."""
    for hole in scanned.holes:
        if not _is_known(hole, sealed):
            behind = index.frames["position"][index.entries["frame"]] >= hole.end
            is_open = np.ones(len(ends), bool)
            is_open[index.entries["partition"][behind]] = False
            ends[is_open] += (hole.end - hole.position) // ROW_BYTES_MIN


def _is_known(hole: Hole, sealed: SealedIndex | None) -> bool:
    """Whether the index has the frames that were in a hole."""
    if sealed is None or hole.end > sealed.covered_bytes:
        return False
    return hole.position in sealed.frames["position"]

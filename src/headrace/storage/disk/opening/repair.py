"""Making up for damage: what a segment's header said, and which offsets a damaged frame may have held.

A header says where the partitions stood when its segment began; frames and neighbouring segments say it too. What a
damaged frame of the newest segment held, its index says if there is one. Else only a bound is known, and the offsets
up to it stay taken: an offset that was acknowledged once must never be given to another message.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from headrace.core.hashing import Int64s
from headrace.core.publish.state import Directory
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
    """The header of a segment with a damaged one, or none if too little is left to know what it said.

    Its time is that of the first frame, which is a little late: nothing is dropped or passed over too early by it.
    """
    view = files.map(path)
    frames = scan(view, frame.ALIGNMENT, topic.id, str(path)).frames
    if not frames:
        return None
    first_number = int(path.stem)
    if before is not None:
        base = _widened(end_offsets(before.header.base_offsets, [before.index]), topic.partitions)
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
    """Where the partitions stood before these frames; of those without messages in them the next segment knows."""
    partitions = max(partitions, *(int(directory.partition.max(initial=0)) + 1 for directory in directories))
    base = np.full(partitions, _UNKNOWN, np.int64) if after is None else _widened(after.base_offsets, partitions)
    for directory in reversed(directories):
        base[directory.partition] = directory.first_offset
    return base


def _widened(offsets: Int64s, partitions: int) -> Int64s:
    return np.concatenate([offsets, np.zeros(max(0, partitions - len(offsets)), np.int64)])


def raise_past_holes(ends: Int64s, scanned: Scanned, index: GrowingIndex, sealed: SealedIndex | None) -> None:
    """Raise the ends of the partitions of which a damaged frame may have held the last messages."""
    for hole in scanned.holes:
        if not _is_known(hole, sealed):
            behind = index.frames["position"][index.entries["frame"]] >= hole.end
            is_open = np.ones(len(ends), bool)
            is_open[index.entries["partition"][behind]] = False
            ends[is_open] += (hole.end - hole.position) // ROW_BYTES_MIN


def _is_known(hole: Hole, sealed: SealedIndex | None) -> bool:
    """Whether an index was written while the frames that stood in a hole were intact."""
    if sealed is None or hole.end > sealed.covered_bytes:
        return False
    return hole.position in sealed.frames["position"]

"""Scans the frames of a segment without an index, and distinguishes a torn tail from damage.

An unreadable frame with nothing intact after it is a torn tail: it was being written when the process or the machine
died, was never acknowledged, and is truncated. One with intact frames after it, or in a part of the file that is known
to have been complete, is damage: it is reported, never skipped silently. Zeros up to the end are preallocated space.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headrace.storage.disk.files import frame
from headrace.storage.disk.files.frame import ALIGNMENT, MAGIC, Header


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes between intact frames that are not a frame."""

    position: int
    end: int


@dataclass(slots=True)
class Scanned:
    """The intact frames and the damage between them; after `end` there is only a torn tail, or nothing."""

    end: int
    frames: list[tuple[int, Header]] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)

    @property
    def last_commit(self) -> int:
        """Where the frames of the last commit begin."""
        start = self.end
        for position, header in reversed(self.frames):
            if start < self.end and not header.continues:
                break
            start = position
        return start


def scan(view: memoryview, start: int, topic_id: int, file: str, complete_bytes: int = 0) -> Scanned:
    """Scan from `start`; the first `complete_bytes` of the file were written completely."""
    result = Scanned(start)
    position = start
    while position < len(view):
        header = frame.read_intact(view, position, topic_id, file)
        if header is None:
            if is_room(view, position):
                break
            following = _next_intact(view, position + ALIGNMENT, topic_id, file)
            if following is None:
                break
            result.holes.append(Hole(position, following))
            position = following
            continue
        result.frames.append((position, header))
        position += header.bytes
        result.end = position
    _cut_unfinished_commit(result, start, complete_bytes)
    if result.end < complete_bytes:
        result.holes.append(Hole(result.end, complete_bytes))
        result.end = complete_bytes
    return result


def is_room(view: memoryview, position: int) -> bool:
    """Whether only zeros follow: preallocated space, or nothing."""
    return not np.frombuffer(view, np.uint8, offset=position).any()


def _next_intact(view: memoryview, position: int, topic_id: int, file: str) -> int | None:
    for candidate in range(frame.aligned(position), len(view), ALIGNMENT):
        if bytes(view[candidate : candidate + 4]) == MAGIC and frame.read_intact(view, candidate, topic_id, file):
            return candidate
    return None


def _cut_unfinished_commit(result: Scanned, start: int, complete_bytes: int) -> None:
    """Drop a commit of several frames whose last one is missing: it was never acknowledged."""
    while result.frames and result.frames[-1][1].continues and result.frames[-1][0] >= complete_bytes:
        result.frames.pop()
    if result.frames:
        position, last = result.frames[-1]
        start = position + last.bytes
    result.end = start
    result.holes = [hole for hole in result.holes if hole.position < start]

"""Which of the oldest pieces of a topic may go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.core.hashing import Int64s
from headrace.core.limits import MICROSECONDS
from headrace.core.settings import TopicSettings


@dataclass(frozen=True, slots=True)
class Piece:
    """A whole segment: its size, the time of its newest message, and each partition's end offset after it."""

    bytes: int
    newest_us: int
    end_offsets: Int64s


def droppable(pieces: Sequence[Piece], settings: TopicSettings, held: Int64s | None, now_us: int) -> int:
    """How many of the oldest pieces are past retention and not held.

    `held` has, per partition, the lowest offset that an important group has yet to read; none if there is no such
    group. A piece goes by size only while at least `retention_bytes` stay.
    """
    total_bytes = sum(piece.bytes for piece in pieces)
    for count, piece in enumerate(pieces):
        total_bytes -= piece.bytes
        if not _is_past(piece, total_bytes, settings, now_us) or _is_held(piece, held):
            return count
    return len(pieces)


def outlived(newest_us: int, settings: TopicSettings, now_us: int) -> bool:
    """Whether everything up to this time is older than the topic keeps."""
    seconds = settings.retention_seconds
    return seconds is not None and newest_us < now_us - seconds * MICROSECONDS


def _is_past(piece: Piece, bytes_after: int, settings: TopicSettings, now_us: int) -> bool:
    too_many = settings.retention_bytes is not None and bytes_after >= settings.retention_bytes
    return too_many or outlived(piece.newest_us, settings, now_us)


def _is_held(piece: Piece, held: Int64s | None) -> bool:
    if held is None:
        return False
    # Of a partition that was added since `held` was made nothing is read yet.
    covered = np.zeros_like(piece.end_offsets)
    known = held[: len(covered)]
    covered[: len(known)] = known
    return bool(np.any(piece.end_offsets > covered))

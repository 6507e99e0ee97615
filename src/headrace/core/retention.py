"""Which of the oldest pieces of a topic may go, and when the newest is to be completed so that it can.

Pieces go whole. So that a topic that is written slowly loses its old messages too, its newest piece is completed once
it is old or large beside what the topic keeps: a message can be read at most `lateness_seconds` after it expired, as
long as retention looks every `RETENTION_CHECK_SECONDS`.

Pieces are dated by broker time, which never goes back: after a clock was ahead for a while, everything that follows is
dated in the future until the present has caught up. Such pieces are as old as they have been seen (`Sightings`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.core.hashing import Int64s
from headrace.core.limits import LATENESS_SECONDS_MIN, MICROSECONDS, PIECE_BYTES_MIN, RETENTION_PARTS
from headrace.core.settings import TopicSettings


@dataclass(frozen=True, slots=True)
class Piece:
    """A whole segment: its size, the time of its newest message, and each partition's end offset after it."""

    bytes: int
    newest_us: int
    end_offsets: Int64s


class Sightings:
    """Since when pieces that are dated in the future are there, as far as this process has seen.

    Broker time rises with every commit, so a piece is known by the time of its newest message. Not safe for threads.
    """

    def __init__(self) -> None:
        self._seen_us: dict[int, int] = {}

    def newest_us(self, newest_us: int, now_us: int) -> int:
        """The time that counts for a piece whose newest message has this broker time."""
        seen_us = self._seen_us.get(newest_us)
        if seen_us is None and newest_us <= now_us:
            return newest_us
        self._seen_us[newest_us] = now_us if seen_us is None else min(seen_us, now_us)
        return min(newest_us, self._seen_us[newest_us])

    def dated(self, pieces: Sequence[Piece], now_us: int) -> list[Piece]:
        """All pieces of a topic with the times that count."""
        dated = [replace(piece, newest_us=self.newest_us(piece.newest_us, now_us)) for piece in pieces]
        there = {piece.newest_us for piece in pieces}
        self._seen_us = {newest_us: seen_us for newest_us, seen_us in self._seen_us.items() if newest_us in there}
        return dated


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


def lateness_seconds(retention_seconds: int) -> float:
    """How long after it expired a message may still be read."""
    return max(LATENESS_SECONDS_MIN, retention_seconds / RETENTION_PARTS)


def should_complete(
    pieces: Sequence[Piece], begun_us: int, settings: TopicSettings, held: Int64s | None, now_us: int
) -> bool:
    """Whether the newest piece, which began then, must be completed: its oldest messages wait for its newest.

    As long as an important group holds older ones there is no hurry: else it would make ever more small pieces.
    """
    if settings.retention_seconds is None:
        return False
    if outlived(pieces[-1].newest_us, settings, now_us):
        return True
    is_stuck = len(pieces) > 1 and outlived(pieces[0].newest_us, settings, now_us)
    if is_stuck and not droppable(pieces, settings, held, now_us):
        return False
    # The other half is for two looks of retention: the one that completes a piece, and the one that drops it.
    return begun_us < now_us - lateness_seconds(settings.retention_seconds) / 2 * MICROSECONDS


def piece_bytes_max(settings: TopicSettings, bytes_max: int) -> int:
    """How large a piece may grow: no more than a part of what the topic keeps."""
    if settings.retention_bytes is None:
        return bytes_max
    return min(bytes_max, max(PIECE_BYTES_MIN, settings.retention_bytes // RETENTION_PARTS))


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

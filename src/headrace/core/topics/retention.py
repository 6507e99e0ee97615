"""Retention: which of the oldest segments of a topic may be deleted, and when the newest one must be rolled.

Segments are deleted whole. So that a slowly written topic loses its old messages too, its newest segment is rolled once
it is old or large compared with what the topic keeps: a message can be read at most `lateness_seconds` after it
expired, as long as retention runs every `RETENTION_CHECK_SECONDS`.

Segments are dated by broker time, which never decreases: after a clock was ahead for a while, all later segments are
dated in the future until the present has caught up. Their age counts from when they were first seen (`Sightings`).

Messages can also be deleted on request, below an offset of each partition. Nobody can read them from that moment on;
segments that have only such messages are deleted by the next run, whatever the topic keeps and whoever has read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np

from headrace.core.errors import MessagesHeld
from headrace.core.hashes.columns import Int64s
from headrace.core.limits import LATENESS_SECONDS_MIN, MICROSECONDS, PIECE_BYTES_MIN, RETENTION_PARTS
from headrace.core.topics.settings import TopicSettings

# No message was deleted on request.
NOTHING_DELETED: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Piece:
    """A whole segment: its size, the time of its newest message, and each partition's end offset after it."""

    bytes: int
    newest_us: int
    end_offsets: Int64s


class Sightings:
    """When this process first saw segments that are dated in the future.

    Broker time rises with every commit, so the time of its newest message identifies a segment. Not thread-safe.
    """

    def __init__(self) -> None:
        self._seen_us: dict[int, int] = {}

    def newest_us(self, newest_us: int, now_us: int) -> int:
        """The time that counts for a segment whose newest message has this broker time."""
        seen_us = self._seen_us.get(newest_us)
        if seen_us is None and newest_us <= now_us:
            return newest_us
        self._seen_us[newest_us] = now_us if seen_us is None else min(seen_us, now_us)
        return min(newest_us, self._seen_us[newest_us])

    def dated(self, pieces: Sequence[Piece], now_us: int) -> list[Piece]:
        """All segments of a topic with the times that count."""
        dated = [replace(piece, newest_us=self.newest_us(piece.newest_us, now_us)) for piece in pieces]
        there = {piece.newest_us for piece in pieces}
        self._seen_us = {newest_us: seen_us for newest_us, seen_us in self._seen_us.items() if newest_us in there}
        return dated


def deletes(settings: TopicSettings) -> bool:
    """Whether a topic ever deletes messages, from its log or from its archive."""
    local = local_settings(settings)
    limits = (local.retention_seconds, local.retention_bytes, settings.archive_retention_seconds)
    return any(limit is not None for limit in limits)


def local_settings(settings: TopicSettings) -> TopicSettings:
    """The settings by which the log itself deletes segments: an archived topic may keep less there."""
    if settings.archive == "off":
        return settings
    seconds, size = settings.local_retention_seconds, settings.local_retention_bytes
    return msgspec.structs.replace(
        settings,
        retention_seconds=settings.retention_seconds if seconds is None else seconds,
        retention_bytes=settings.retention_bytes if size is None else size,
    )


def trimmed(settings: TopicSettings, age_seconds: int) -> TopicSettings:
    """The settings for deleting everything older than an age once, wherever it is, archived or not.

    Nothing else is deleted by them: by size, an archived topic would lose what is not archived yet. An age of 0 is
    everything, also what is dated in the future.
    """
    return msgspec.structs.replace(
        settings,
        archive="off",
        retention_seconds=age_seconds,
        retention_bytes=None,
        archive_retention_seconds=age_seconds,
    )


def raised_by(deleted_before: Sequence[int], offsets: Mapping[int, int]) -> tuple[int, ...]:
    """By partition the offset below which messages are deleted, after a request by partition; it never falls."""
    count = max(len(deleted_before), 1 + max(offsets, default=-1))
    before = [*deleted_before, *[0] * (count - len(deleted_before))]
    return tuple(max(offset, offsets.get(partition, 0)) for partition, offset in enumerate(before))


def check_read(topic: str, offsets: Mapping[int, int], committed: Mapping[str, Mapping[int, int]]) -> None:
    """Raise if an important group has not read up to these offsets; `committed` is by group and partition."""
    for partition, offset in offsets.items():
        for group, positions in committed.items():
            if positions.get(partition, 0) < offset:
                raise MessagesHeld(topic, partition, offset, group, positions.get(partition, 0))


def droppable(
    pieces: Sequence[Piece],
    settings: TopicSettings,
    held: Int64s | None,
    now_us: int,
    deleted_before: Int64s = NOTHING_DELETED,
) -> int:
    """How many of the oldest segments are past retention and not held, or were deleted on request.

    `held` has, per partition, the lowest offset that an important group has not read yet; None if there is no such
    group. A segment is deleted by size only while at least `retention_bytes` remain.
    """
    total_bytes = sum(piece.bytes for piece in pieces)
    for count, piece in enumerate(pieces):
        total_bytes -= piece.bytes
        if _is_deleted(piece, deleted_before):
            continue
        if not _is_past(piece, total_bytes, settings, now_us) or _is_held(piece, held):
            return count
    return len(pieces)


def outlived(newest_us: int, settings: TopicSettings, now_us: int) -> bool:
    """Whether everything up to this time is older than the topic keeps."""
    seconds = settings.retention_seconds
    return seconds is not None and is_older(newest_us, seconds, now_us)


def is_older(newest_us: int, seconds: int, now_us: int) -> bool:
    """Whether everything up to this time is older than these seconds; always with 0, even in the future."""
    return seconds == 0 or newest_us < now_us - seconds * MICROSECONDS


def lateness_seconds(retention_seconds: int) -> float:
    """How long after it expired a message may still be read."""
    return max(LATENESS_SECONDS_MIN, retention_seconds / RETENTION_PARTS)


def should_complete(
    pieces: Sequence[Piece],
    begun_us: int,
    settings: TopicSettings,
    held: Int64s | None,
    now_us: int,
    deleted_before: Int64s = NOTHING_DELETED,
) -> bool:
    """Whether the newest segment, which started at this time, must be rolled so that it can be deleted.

    Not while an important group holds older segments: that would create ever more small segments.
    """
    if _is_deleted(pieces[-1], deleted_before):
        return True
    if settings.retention_seconds is None:
        return False
    if outlived(pieces[-1].newest_us, settings, now_us):
        return True
    is_stuck = len(pieces) > 1 and outlived(pieces[0].newest_us, settings, now_us)
    if is_stuck and not droppable(pieces, settings, held, now_us, deleted_before):
        return False
    # The other half is for two retention runs: one rolls the segment, the next deletes it.
    return begun_us < now_us - lateness_seconds(settings.retention_seconds) / 2 * MICROSECONDS


def piece_bytes_max(settings: TopicSettings, bytes_max: int) -> int:
    """The maximum size of a segment: a fraction of what the topic keeps."""
    retention_bytes = local_settings(settings).retention_bytes
    if retention_bytes is None:
        return bytes_max
    return min(bytes_max, max(PIECE_BYTES_MIN, retention_bytes // RETENTION_PARTS))


def _is_past(piece: Piece, bytes_after: int, settings: TopicSettings, now_us: int) -> bool:
    too_many = settings.retention_bytes is not None and bytes_after >= settings.retention_bytes
    return too_many or outlived(piece.newest_us, settings, now_us)


def _is_held(piece: Piece, held: Int64s | None) -> bool:
    return held is not None and not _is_below(piece, held)


def _is_deleted(piece: Piece, deleted_before: Int64s) -> bool:
    return len(deleted_before) > 0 and _is_below(piece, deleted_before)


def _is_below(piece: Piece, offsets: Int64s) -> bool:
    """Whether a segment ends at or before these offsets; of partitions that were added since, the offset is 0."""
    covered = np.zeros_like(piece.end_offsets)
    known = offsets[: len(covered)]
    covered[: len(known)] = known
    return bool(np.all(piece.end_offsets <= covered))

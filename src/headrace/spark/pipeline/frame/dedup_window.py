"""Which rows repeat an earlier one within a window: whole columns in, a mask out, and what to remember.

A row is known by two 64-bit hashes and its time. The first of equal rows is kept; one that comes less than a window
before or after a kept one is a repeat; repeats do not renew the window. This is the payload window of the broker, for
rows that need not come in the order of their times: partitions are read at their own pace.

Remembered is what was kept, back to one window before the oldest row of the newest batch, and at most `ROWS_MAX` rows:
beyond that the oldest are forgotten before their time. Pure; runs inside Spark's Python workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.core.hashes.columns import Int64s
from headrace.core.limits import WINDOW_MESSAGES_DEFAULT

Bools = npt.NDArray[np.bool_]

# Rows are divided by hash, so that a worker loads and stores a share of what is remembered. A part of the state's
# format: a checkpoint that was written with another number cannot be read.
BUCKETS: Final = 64
ROWS_MAX: Final = WINDOW_MESSAGES_DEFAULT // BUCKETS


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows by hashes and time."""

    first: Int64s
    second: Int64s
    time_us: Int64s

    def __len__(self) -> int:
        return len(self.first)

    def pick(self, rows: Bools | Int64s) -> Rows:
        """Some of them."""
        return Rows(self.first[rows], self.second[rows], self.time_us[rows])

    def to_bytes(self) -> bytes:
        """As a state store keeps them."""
        return np.stack([self.first, self.second, self.time_us]).astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Rows:
        """The rows of `to_bytes`."""
        first, second, time_us = np.frombuffer(data, "<i8").reshape(3, -1)
        return cls(first, second, time_us)


NOTHING: Final = Rows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def first_of_each(rows: Rows, known: Rows, window_us: int) -> Bools:
    """Which rows to keep. Of rows with equal hashes and time the one that stands first is kept."""
    together = Rows(*(np.concatenate(pair) for pair in zip(_columns(known), _columns(rows), strict=True)))
    # Stable, so that what is known stands before what is equal to it.
    order = np.lexsort((together.time_us, together.second, together.first))
    ordered = together.pick(order)
    starts = np.ones(len(order), bool)
    starts[1:] = (np.diff(ordered.first) != 0) | (np.diff(ordered.second) != 0)
    kept = order < len(known)
    group = np.cumsum(starts)
    pending = np.flatnonzero(~kept & ~_near(kept, group, ordered.time_us, window_us))
    kept[pending[_a_window_apart(group[pending], ordered.time_us[pending], window_us)]] = True
    mask = np.empty(len(order), bool)
    mask[order] = kept
    return mask[len(known) :]


def remembered(known: Rows, kept: Rows, oldest_us: int, window_us: int) -> Rows:
    """What to know next time, after a batch whose oldest row was of this time."""
    together = Rows(*(np.concatenate(pair) for pair in zip(_columns(known), _columns(kept), strict=True)))
    recent = together.pick(together.time_us > oldest_us - window_us)
    if len(recent) <= ROWS_MAX:
        return recent
    return recent.pick(np.sort(np.argsort(recent.time_us, kind="stable")[-ROWS_MAX:]))


def _columns(rows: Rows) -> tuple[Int64s, Int64s, Int64s]:
    return rows.first, rows.second, rows.time_us


def _near(kept: Bools, group: Int64s, time_us: Int64s, window_us: int) -> Bools:
    """Which rows are less than a window away from a kept one of the same hashes."""
    places = np.arange(len(kept))
    before = np.maximum.accumulate(np.where(kept, places, -1))
    after = np.minimum.accumulate(np.where(kept, places, len(kept))[::-1])[::-1]
    near = np.zeros(len(kept), bool)
    for place, is_there in ((before, before >= 0), (after, after < len(kept))):
        other = np.where(is_there, place, 0)
        same = is_there & (group[other] == group)
        near |= same & (np.abs(time_us[other] - time_us) < window_us)
    return near


def _a_window_apart(group: Int64s, time_us: Int64s, window_us: int) -> Int64s:
    """Of rows in order of group and time, the first of each group and each that is a window after the last chosen."""
    following = _following(group, time_us, window_us)
    # One step takes all groups to their next row at once, and touches no row that is not chosen.
    front = np.flatnonzero(np.diff(group, prepend=-1))
    chosen = [front]
    while len(front):
        after = following[front]
        is_there = after < len(group)
        front, after = front[is_there], after[is_there]
        front = after[group[after] == group[front]]
        chosen.append(front)
    return np.concatenate(chosen)


def _following(group: Int64s, time_us: Int64s, window_us: int) -> Int64s:
    """For each row the place of the first one that is a window later, or of a later group."""
    count = len(group)
    is_row = np.repeat([False, True], count)
    order = np.lexsort((is_row, np.concatenate([time_us + window_us, time_us]), np.concatenate([group, group])))
    rows_before = np.empty(2 * count, np.int64)
    rows_before[order] = np.cumsum(is_row[order])
    return rows_before[:count]

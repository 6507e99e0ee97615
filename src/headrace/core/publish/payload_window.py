"""The payload window: which values were written in the last minutes, by two hashes, in bounded memory.

A window is a list of runs, each sorted by its first hash and never changed once made. A commit adds a run; runs of
like size are merged, so there are only about log2(commits) of them and a lookup is one binary search per run. A
payload is a duplicate only if both hashes agree and it was written within the window; the time of its first writing
counts, later duplicates do not renew it.

Payloads are dated by the present where broker time is ahead of it. A payload that is dated in the future all the same,
because the clock was ahead for a while when it was written, counts from when that is noticed.

Bound: `messages_max` payloads of 24 bytes. Beyond it the oldest are forgotten before their time, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.hashes.columns import Int64s, UInt64s, fnv1a64, mix64
from headrace.core.limits import CLOCK_JUMP_SECONDS, MICROSECONDS, WINDOW_MESSAGES_DEFAULT

Bools = npt.NDArray[np.bool_]

SNAPSHOT_SCHEMA: Final = pa.schema(
    [pa.field("first", pa.uint64()), pa.field("second", pa.uint64()), pa.field("time_us", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class Payloads:
    """The hashes of some values and when they were written."""

    first: UInt64s
    second: UInt64s
    time_us: Int64s

    def __len__(self) -> int:
        return len(self.first)

    def pick(self, rows: npt.NDArray[np.int64] | Bools) -> Payloads:
        """Some of them."""
        return Payloads(self.first[rows], self.second[rows], self.time_us[rows])


NO_PAYLOADS: Final = Payloads(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64))


def payloads_of(values: pa.Array, time_us: int) -> Payloads:
    """The hashes of a column of values; null is no payload, so two messages without a value are never alike."""
    values = values.drop_null() if values.null_count else values
    return Payloads(fnv1a64(values), mix64(values), np.full(len(values), time_us, np.int64))


def present_of(time_us: int, now_us: int) -> int:
    """The time by which payloads are dated: broker time, unless a clock that was ahead has left it in the future."""
    return now_us if _is_ahead(time_us, now_us) else time_us


def _is_ahead(time_us: int, now_us: int) -> bool:
    # Broker time rises with every commit, so it may be ahead by moments.
    return time_us > now_us + CLOCK_JUMP_SECONDS * MICROSECONDS


def repeats_within(payloads: Payloads) -> Bools:
    """Which rows repeat an earlier row of the same batch."""
    order = np.lexsort((payloads.second, payloads.first))
    first, second = payloads.first[order], payloads.second[order]
    same = np.zeros(len(order), bool)
    same[1:] = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
    repeats = np.zeros(len(order), bool)
    repeats[order] = same
    return repeats


class PayloadWindow:
    """The payloads written lately. Not thread-safe: the topic's commit order protects it."""

    def __init__(self, messages_max: int = WINDOW_MESSAGES_DEFAULT) -> None:
        self.messages_max = messages_max
        self.forgotten_early = 0
        self._runs: list[Payloads] = []
        # No payload is dated later.
        self._newest_us = 0

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def contains(self, payloads: Payloads, after_us: int) -> Bools:
        """Which of them were written after `after_us`."""
        found = np.zeros(len(payloads), bool)
        for run in self._runs:
            found |= _found_in(run, payloads, after_us)
        return found

    def add(self, payloads: Payloads) -> None:
        """Remember what a commit wrote."""
        if not len(payloads):
            return
        self._newest_us = max(self._newest_us, int(payloads.time_us.max()))
        self._runs.append(payloads.pick(np.argsort(payloads.first, kind="stable")))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            self._runs[-2:] = [_merged(self._runs[-2:])]
        excess = len(self) - self.messages_max
        if excess > 0:
            # A tenth more than needed, so that a full window is not merged again at every commit.
            self.forgotten_early += self._forget_oldest(excess + self.messages_max // 10)

    def clean(self, after_us: int) -> int:
        """Drop what was written at or before `after_us`; returns how many."""
        before = len(self)
        kept = (run.pick(run.time_us > after_us) for run in self._runs)
        self._runs = [run for run in kept if len(run)]
        return before - len(self)

    def date_back(self, now_us: int) -> None:
        """Let payloads that are dated in the future count from now on."""
        if _is_ahead(self._newest_us, now_us):
            self._runs = [Payloads(run.first, run.second, np.minimum(run.time_us, now_us)) for run in self._runs]
            self._newest_us = now_us

    def _forget_oldest(self, count: int) -> int:
        everything = _merged(self._runs)
        keep = np.ones(len(everything), bool)
        keep[np.argsort(everything.time_us, kind="stable")[:count]] = False
        self._runs = [everything.pick(keep)]
        return count

    def copy(self) -> PayloadWindow:
        """An independent window with the same content."""
        twin = PayloadWindow(self.messages_max)
        twin._runs, twin.forgotten_early = list(self._runs), self.forgotten_early
        twin._newest_us = self._newest_us
        return twin

    def snapshot(self) -> pa.RecordBatch:
        """The whole window as Arrow."""
        content = _merged(self._runs) if self._runs else NO_PAYLOADS
        columns = [pa.array(content.first), pa.array(content.second), pa.array(content.time_us)]
        return pa.RecordBatch.from_arrays(columns, schema=SNAPSHOT_SCHEMA)

    @classmethod
    def restore(cls, snapshot: pa.RecordBatch, messages_max: int = WINDOW_MESSAGES_DEFAULT) -> PayloadWindow:
        """The window that gave this snapshot."""
        window = cls(messages_max)
        first, second, time_us = (snapshot.column(name).to_numpy().copy() for name in SNAPSHOT_SCHEMA.names)
        window.add(Payloads(first, second, time_us))
        return window


def _found_in(run: Payloads, payloads: Payloads, after_us: int) -> Bools:
    """Compare with each entry of equal first hash; more than one is as rare as a collision of 64 bits."""
    place = np.searchsorted(run.first, payloads.first)
    found = np.zeros(len(payloads), bool)
    left = np.flatnonzero(place < len(run))
    while len(left):
        at = place[left]
        left, at = left[run.first[at] == payloads.first[left]], at[run.first[at] == payloads.first[left]]
        found[left] |= (run.second[at] == payloads.second[left]) & (run.time_us[at] > after_us)
        place[left] += 1
        left = left[place[left] < len(run)]
    return found


def _merged(runs: list[Payloads]) -> Payloads:
    first = np.concatenate([run.first for run in runs])
    order = np.argsort(first, kind="stable")
    second = np.concatenate([run.second for run in runs])[order]
    return Payloads(first[order], second, np.concatenate([run.time_us for run in runs])[order])

"""What one consumer got of a load: which messages arrived, and whether partitions kept the order of each producer.

The counts of a group's members are saved and added up: then every message of every producer must be in them once. Not
thread-safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.load.load import Load
from headrace.load.payload import Heads, have_heads, heads_of


@dataclass(frozen=True, slots=True)
class Findings:
    """What was wrong with what a group got; all are zero if nothing was."""

    missing: int = 0
    doubled: int = 0
    out_of_order: int = 0
    foreign: int = 0

    @property
    def are_good(self) -> bool:
        """Whether everything arrived once and in order."""
        return not (self.missing or self.doubled or self.out_of_order or self.foreign)


class Verification:
    """Counts of every message of a load."""

    def __init__(self, load: Load) -> None:
        shares = [load.share(producer) for producer in range(load.producers)]
        self._shares = np.array(shares, np.int64)
        self._firsts = np.concatenate(([0], np.cumsum(self._shares)))[:-1]
        self._producers = load.producers
        self._last = np.full(load.partitions * load.producers, -1, np.int64)
        self.seen = np.zeros(load.messages, np.uint8)
        self.arrived = 0
        self.out_of_order = 0
        self.foreign = 0

    def enter(self, batch: pa.RecordBatch) -> Heads:
        """Count a batch; what its messages say, but for those of another load."""
        rows, long_enough = batch.num_rows, have_heads(batch.column("value"))
        if not long_enough.all():
            batch = batch.filter(pa.array(long_enough))
        heads = heads_of(batch.column("value"))
        ours = self._are_ours(heads)
        if not ours.all():
            batch, heads = batch.filter(pa.array(ours)), Heads(*(column[ours] for column in heads))
        self.foreign += rows - batch.num_rows
        if not batch.num_rows:
            return heads
        places = self._firsts[heads.producers] + heads.numbers
        np.add.at(self.seen, places, 1)
        # A repeated one is not counted again.
        self.arrived += int((self.seen[places] == 1).sum())
        self._check_order(np.asarray(batch.column("partition")), heads)
        return heads

    def save(self, path: Path) -> None:
        """The counts, to be added up."""
        np.save(path, self.seen)

    def _are_ours(self, heads: Heads) -> npt.NDArray[np.bool_]:
        known = (heads.producers >= 0) & (heads.producers < self._producers) & (heads.numbers >= 0)
        shares = self._shares[np.where(known, heads.producers, 0)]
        return known & (heads.numbers < shares)

    def _check_order(self, partitions: npt.NDArray[np.int32], heads: Heads) -> None:
        lanes = partitions.astype(np.int64) * self._producers + heads.producers
        order = np.argsort(lanes, kind="stable")
        lanes, numbers = lanes[order], heads.numbers[order]
        begins = np.append(True, lanes[1:] != lanes[:-1])
        before = np.append(-1, numbers[:-1])
        before[begins] = self._last[lanes[begins]]
        self.out_of_order += int((numbers <= before).sum())
        ends = np.append(begins[1:], True)
        self._last[lanes[ends]] = numbers[ends]


def findings(counts_paths: list[Path], messages: int, out_of_order: int, foreign: int) -> Findings:
    """The total of the counts of one group."""
    seen = np.zeros(messages, np.uint32)
    for path in counts_paths:
        seen += np.load(path)
    return Findings(int((seen == 0).sum()), int((seen > 1).sum()), out_of_order, foreign)

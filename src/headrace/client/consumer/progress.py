"""Progress of a consumer: the next offset of each partition after the messages it has returned.

An iterated batch counts row by row: rows that the loop has not reached do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from headrace.core.lists import plain_values


class ReadProgress:
    """Positions behind what was given out.

    One that is growing counts partitions that come later too; else they are another member's, and do not count.
    """

    def __init__(self, growing: bool = False) -> None:
        self._growing = growing
        self._positions: dict[int, int] = {}
        self._uncommitted: set[int] = set()
        self._iterated: pa.RecordBatch | None = None
        self._taken = 0
        # The rows of the iterated batch that were given out; the loop sets it before each message.
        self.rows_given = 0

    def begin(self, positions: Mapping[int, int]) -> None:
        """Stand at these positions, with nothing given out since."""
        self.settle()
        self._iterated = None
        self._positions = dict(positions)
        self._uncommitted &= set(positions)

    def move(self, positions: Mapping[int, int]) -> None:
        """Stand elsewhere in some partitions."""
        self.settle()
        self._positions.update(positions)
        self._uncommitted -= set(positions)

    def give(self, batch: pa.RecordBatch) -> None:
        """A whole batch is given out."""
        self.settle()
        self._add(batch)

    def give_by_rows(self, batch: pa.RecordBatch) -> None:
        """A batch is given out row by row from now on."""
        self.settle()
        self._iterated, self._taken, self.rows_given = batch, 0, 0

    def pass_over(self, positions: Mapping[int, int]) -> None:
        """Messages that are not given out lie before these positions, and nothing else that was not."""
        self.settle()
        self._stand_at(positions)

    def is_iterating(self, batch: pa.RecordBatch) -> bool:
        """Whether the rows of this batch are still what is given out."""
        return self._iterated is batch

    def take_rest(self) -> pa.RecordBatch | None:
        """The rows that a loop was left before, which its batch gives out no more."""
        self.settle()
        iterated, self._iterated = self._iterated, None
        return None if iterated is None or self._taken == iterated.num_rows else iterated.slice(self._taken)

    def positions(self) -> dict[int, int]:
        """The next offset of each partition."""
        self.settle()
        return dict(self._positions)

    def uncommitted(self) -> dict[int, int]:
        """The positions that changed since they were committed."""
        self.settle()
        return {partition: self._positions[partition] for partition in self._uncommitted}

    def committed(self, partitions: Iterable[int]) -> None:
        """These are committed as they are."""
        self._uncommitted -= set(partitions)

    def settle(self) -> None:
        """Count the rows that the loop over the iterated batch has reached."""
        if self._iterated is not None and self.rows_given > self._taken:
            self._add(self._iterated.slice(self._taken, self.rows_given - self._taken))
            self._taken = self.rows_given

    def _add(self, batch: pa.RecordBatch) -> None:
        self._stand_at(positions_behind(batch))

    def _stand_at(self, positions: Mapping[int, int]) -> None:
        for partition, offset in positions.items():
            if self._growing or partition in self._positions:
                self._positions[partition] = offset
                self._uncommitted.add(partition)


def positions_behind(batch: pa.RecordBatch) -> dict[int, int]:
    """The next offset of each partition that a batch has rows of."""
    if batch.num_rows == 1:
        return {batch.column("partition")[0].as_py(): batch.column("offset")[0].as_py() + 1}
    partitions = plain_values(batch.column("partition"), np.int32)
    offsets = plain_values(batch.column("offset"), np.int64)
    # The rows of a partition are in order, so its last row is where its run ends last.
    ends = np.append(np.flatnonzero(partitions[1:] != partitions[:-1]), len(partitions) - 1)
    return dict(zip(partitions[ends].tolist(), (offsets[ends] + 1).tolist(), strict=True))

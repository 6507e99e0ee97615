"""Record batches that wait to be written: those of one topic become one batch of messages, and one commit.

Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.errors import HeadraceError
from headrace.core.messages import join
from headrace.core.publish.receipts import WRITTEN, Receipts
from headrace.protocols.kafka.records.header import BadRecords, BatchHeader

UNKNOWN_OFFSET: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A record batch of one partition; the future gets the offset of its first record, or the error."""

    partition: int
    header: BatchHeader
    columns: pa.RecordBatch
    future: asyncio.Future[int]

    @property
    def rows(self) -> int:
        """How many records it has."""
        return self.header.count

    def settle(self, outcome: int | Exception) -> None:
        """Say what became of it."""
        if self.future.done():
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(light(outcome))
        else:
            self.future.set_result(outcome)


def light(error: Exception) -> Exception:
    """An error, without its traceback if it was expected: the frames of that would hold the records."""
    return error.with_traceback(None) if isinstance(error, HeadraceError | BadRecords) else error


def joined(group: Sequence[Waiting]) -> pa.RecordBatch:
    """The messages of several record batches of a topic, with their partitions."""
    partitions = np.array([each.partition for each in group], np.int32)
    rows = np.array([each.rows for each in group], np.int64)
    batch = join([each.columns for each in group])
    return batch.append_column("partition", pa.array(np.repeat(partitions, rows)))


def first_offset(receipts: Receipts, first: int, rows: int) -> int:
    """The offset of the first record that was written, of those from a row on."""
    if receipts.outcome[first] == WRITTEN:
        return int(receipts.offset[first])
    written = np.flatnonzero(receipts.outcome[first : first + rows] == WRITTEN)
    return int(receipts.offset[first + written[0]]) if len(written) else UNKNOWN_OFFSET

"""Record batches that wait to be written: those of one topic become one batch of messages, and one commit.

Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.errors import HeadraceError
from headrace.core.lists import numbers
from headrace.core.messages import join
from headrace.core.publish.receipts import WRITTEN, Receipts
from headrace.protocols.kafka.records.decode import RecordBatch
from headrace.protocols.kafka.records.header import BadRecords

UNKNOWN_OFFSET: Final = -1


@dataclass(slots=True, eq=False)
class Waiting:
    """A record batch of one partition; the future gets the offset of its first record, or the error.

    Nobody changes it; `frozen` would take most of the time to create one.
    """

    partition: int
    records: RecordBatch
    future: asyncio.Future[int]

    @property
    def rows(self) -> int:
        """How many records it has."""
        return self.records.header.count

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
    batch = join(list(_neighbours(group)))
    return batch.append_column("partition", numbers(pa.int32(), np.repeat(partitions, rows)))


def _neighbours(group: Sequence[Waiting]) -> Iterator[pa.RecordBatch]:
    """The messages of the group; those that were decoded together and follow one another are not cut apart."""
    together, first, end = group[0].records.together, group[0].records.first, group[0].records.first
    for each in group:
        records = each.records
        if records.together is not together or records.first != end:
            yield together.slice(first, end - first)
            together, first = records.together, records.first
        end = records.first + each.rows
    yield together.slice(first, end - first)


def first_offset(receipts: Receipts, first: int, rows: int) -> int:
    """The offset of the first record that was written, of those from a row on."""
    if receipts.outcome[first] == WRITTEN:
        return int(receipts.offset[first])
    written = np.flatnonzero(receipts.outcome[first : first + rows] == WRITTEN)
    return int(receipts.offset[first + written[0]]) if len(written) else UNKNOWN_OFFSET

"""Parts: rows of one partition that are written or refused by themselves, as Kafka's record batches are.

The parts of all submissions of a commit are one group, in the order of their partitions, so that planning sorts nothing
and every part gets its offset by one look at the receipts. The parts of idempotent producers are a group of their own:
each continues the numbers of its source, or it repeats what was written, or it is refused. That is decided where the
last seqno of the source is known, with what this commit writes before it. So nothing is written behind a part that is
missing, in whichever order parts arrive and through whichever server.

The numbers of a source stay within one partition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.core.hashes.columns import Int64s
from headrace.core.lists import numbers
from headrace.core.messages import accept_all, join
from headrace.core.publish.receipts import WRITTEN, Receipts
from headrace.core.publish.sources import Source
from headrace.core.publish.state import TopicState
from headrace.storage.catalog import TopicRecord

UNKNOWN_OFFSET: Final = -1
# Sources whose last messages are not in the log are remembered up to this number.
_PASSED_MAX: Final = 10_000


class Numbering(Protocol):
    """How a part continues the numbers of its source."""

    @property
    def source(self) -> Source:
        """Whose numbers they are."""

    def first_seqno(self, last: int | None) -> int:
        """The seqno of its first row, above the last one; or at or below it, if it repeats what was written.

        Raises if it is neither.
        """


@dataclass(slots=True, eq=False)
class Part:
    """Rows of a batch, from `first` on, for one partition; and what became of them.

    offset: where its first row was written, or UNKNOWN_OFFSET if all its payloads were duplicates.
    repeated: its first seqno, if it repeats what was written before; the log has its offset.
    """

    partition: int
    together: pa.RecordBatch
    first: int
    rows: int
    numbering: Numbering | None = None
    offset: int = UNKNOWN_OFFSET
    repeated: int | None = None
    error: Exception | None = None
    # Of the last decision.
    seqno: int = 0


class PassedNumbers:
    """Sources whose last messages were dropped because of their payloads: the log has none of them, but they count.

    Remembered by this server only, and valid as long as the log has the same last seqno as then.
    """

    def __init__(self) -> None:
        self._passed: OrderedDict[Source, tuple[int | None, int]] = OrderedDict()

    def last_seqno(self, state: TopicState, source: Source) -> int | None:
        """The last seqno of a source."""
        logged = state.sources.last_seqno(source)
        passed = self._passed.get(source)
        return passed[1] if passed is not None and passed[0] == logged else logged

    def put(self, source: Source, logged: int | None, last: int) -> None:
        """A source has come this far, the log with it or not."""
        self._passed.pop(source, None)
        if logged != last:
            self._passed[source] = logged, last
            if len(self._passed) > _PASSED_MAX:
                self._passed.popitem(last=False)


class PartGroup:
    """The parts of a commit that are planned together. Not thread-safe."""

    def __init__(self, parts: Sequence[Part], topic: TopicRecord, passed: PassedNumbers) -> None:
        self._passed = passed
        self.parts = sorted(parts, key=lambda part: part.partition)
        self.error: Exception | None = None
        self.receipts: Receipts | None = None
        self._all = self._checked(topic)
        # Of the last decision: the rows and the parts to write, and by source its last seqno in the log before.
        self.decided: list[pa.RecordBatch] = []
        self._fresh: Sequence[Part] = ()
        self._logged: dict[Source, int | None] = {}

    def _checked(self, topic: TopicRecord) -> pa.RecordBatch | None:
        """The canonical rows of the parts that break no rule; the others are refused."""
        accepted, errors = accept_all([joined(self.parts)], topic.settings, topic.partitions)
        if errors:
            accepted, errors = accept_all([joined([part]) for part in self.parts], topic.settings, topic.partitions)
            for part, error in zip(self.parts, errors, strict=True):
                part.error = error
            self.parts = [part for part in self.parts if part.error is None]
        return join(accepted) if accepted else None

    @property
    def rows(self) -> int:
        """How many rows are written, of which it gets receipts."""
        return sum(part.rows for part in self._fresh)

    @property
    def repeated_rows(self) -> int:
        """How many rows were written before."""
        return sum(part.rows for part in self.parts if part.repeated is not None)

    def decide(self, state: TopicState) -> list[pa.RecordBatch]:
        """The rows to write, with their sources, in one batch if there are any; may be called again."""
        self._fresh = () if self.error is not None else self._numbered(state)
        self.decided = [self._fresh_rows()] if self._fresh else []
        return self.decided

    def _fresh_rows(self) -> pa.RecordBatch:
        assert self._all is not None, "there are parts"
        rows = self._all
        if len(self._fresh) < len(self.parts):
            fresh = set(self._fresh)
            starts = np.cumsum([0, *(part.rows for part in self.parts)]).tolist()
            kept = [(part, start) for part, start in zip(self.parts, starts, strict=False) if part in fresh]
            rows = join([rows.slice(start, part.rows) for part, start in kept])
        return rows if self._fresh[0].numbering is None else _with_sources(rows, self._fresh)

    def _numbered(self, state: TopicState) -> Sequence[Part]:
        """The parts to write: those that follow the last ones of their sources, or have no numbers."""
        if not self.parts or self.parts[0].numbering is None:
            return self.parts
        ahead: dict[Source, int | None] = {}
        fresh: list[Part] = []
        for part in self.parts:
            part.repeated = part.error = None
            assert part.numbering is not None, "all parts of a group are numbered, or none"
            source = part.numbering.source
            if source not in ahead:
                ahead[source] = self._passed.last_seqno(state, source)
                self._logged[source] = state.sources.last_seqno(source)
            last = ahead[source]
            try:
                part.seqno = part.numbering.first_seqno(last)
            except Exception as error:
                part.error = error
                continue
            if last is not None and part.seqno <= last:
                part.repeated = part.seqno
            else:
                ahead[source] = part.seqno + part.rows - 1
                fresh.append(part)
        return fresh

    def refuse(self, error: Exception) -> None:
        """Nothing of it can be written."""
        self.error = error
        for part in self.parts:
            part.error = error

    def answer(self, receipts: Receipts) -> None:
        """Give each part that was to be written its offset."""
        self.receipts = receipts
        starts = np.cumsum([0, *(part.rows for part in self._fresh)])
        if receipts.written == len(receipts):
            for part, offset in zip(self._fresh, receipts.offset[starts[:-1]].tolist(), strict=True):
                part.offset = offset
            return
        for part, start in zip(self._fresh, starts.tolist(), strict=False):
            written = np.flatnonzero(receipts.outcome[start : start + part.rows] == WRITTEN)
            part.offset = int(receipts.offset[start + written[0]]) if len(written) else UNKNOWN_OFFSET
            if part.numbering is not None:
                source = part.numbering.source
                if len(written):
                    self._logged[source] = part.seqno + int(written[-1])
                self._passed.put(source, self._logged[source], part.seqno + part.rows - 1)


def joined(parts: Sequence[Part]) -> pa.RecordBatch:
    """The rows of parts, with their partitions."""
    partitions = np.array([part.partition for part in parts], np.int32)
    rows = join(list(neighbours(parts)))
    return rows.append_column("partition", numbers(pa.int32(), np.repeat(partitions, _counts(parts))))


def neighbours(parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    """The rows of parts; those that follow one another in the same batch are not cut apart."""
    together, first, end = parts[0].together, parts[0].first, parts[0].first
    for part in parts:
        if part.together is not together or part.first != end:
            yield together.slice(first, end - first)
            together, first = part.together, part.first
        end = part.first + part.rows
    yield together.slice(first, end - first)


def _counts(parts: Sequence[Part]) -> Int64s:
    return np.array([part.rows for part in parts], np.int64)


def _with_sources(rows: pa.RecordBatch, parts: Sequence[Part]) -> pa.RecordBatch:
    """The rows with the producer, the message group and the seqno of each."""
    counts = _counts(parts)
    sources = [part.numbering.source for part in parts if part.numbering is not None]
    firsts = np.array([part.seqno for part in parts], np.int64) - (np.cumsum(counts) - counts)
    columns = {
        "producer_id": _repeated([producer_id for producer_id, _ in sources], counts),
        "message_group_id": _repeated([group for _, group in sources], counts),
        "seqno": numbers(pa.int64(), np.arange(counts.sum()) + np.repeat(firsts, counts)),
    }
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows


def _repeated(texts: Sequence[str], counts: Int64s) -> pa.Array:
    """Each text as many times as its count says."""
    coded = [text.encode() for text in texts]
    ends = np.cumsum(np.repeat([len(text) for text in coded], counts))
    bounds = np.concatenate([[0], ends]).astype(np.int32)
    data = b"".join([text * count for text, count in zip(coded, counts.tolist(), strict=True)])
    return pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(bounds), pa.py_buffer(data)])

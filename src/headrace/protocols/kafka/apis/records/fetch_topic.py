"""One topic of a fetch: what is asked of its partitions, and what the client of a session was told of them, in columns.

A fetch may name very many partitions, and is looked at whenever its topic gets messages: a few calls of numpy, however
many they are. Nothing here blocks, except `part` if it is told to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from kio.schema.errors import ErrorCode

from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import HeadraceError
from headrace.core.hashes.columns import Int64s
from headrace.protocols.kafka.apis.topic_ids import TopicRef
from headrace.protocols.kafka.errors import code_of
from headrace.protocols.kafka.messages.rows import NumberRows
from headrace.storage.interface import OffsetRange

Bools = npt.NDArray[np.bool_]
_OUT_OF_RANGE: Final = int(ErrorCode.offset_out_of_range)
_UNKNOWN_PARTITION: Final = int(ErrorCode.unknown_topic_or_partition)
# So few partitions are looked at without columns, which would cost more.
_FEW_MAX: Final = 8
# More partitions than this without messages are answered in columns, which for few would cost more.
_ROWS_MIN: Final = 1_000
# What nobody was told yet.
_UNTOLD: Final = -2


class FetchTopic:
    """What is asked of the partitions of one topic, by `row`; with a reader, or why it is refused, once it is open."""

    numbers: Int64s
    offsets: Int64s
    bytes_max: Int64s

    def __init__(self, ref: TopicRef, wanted: Mapping[int, Any]) -> None:
        self.ref = ref
        self._wanted = wanted
        self._lowest, self._highest = min(wanted), max(wanted)
        self._has_columns = False
        self.name = ""
        self.reader: TopicReader | None = None
        self.error: Exception | None = None
        # Start and end of all its partitions, as last looked at.
        self.seen: OffsetRange | None = None

    def make_columns(self) -> None:
        """Have the columns; idempotent."""
        if not self._has_columns:
            self._has_columns = True
            asked = self._wanted.values()
            self.numbers = np.array(list(self._wanted), np.int64)
            self.offsets = np.array([each.fetch_offset for each in asked], np.int64)
            self.bytes_max = np.array([max(1, each.partition_max_bytes) for each in asked], np.int64)

    def __len__(self) -> int:
        return len(self.numbers) if self._has_columns else len(self._wanted)

    def has_messages(self) -> bool:
        """Whether reading could give anything, an error among it; neither locks nor disk are used."""
        if self.reader is None:
            return True
        try:
            self.seen = self.reader.seen_offsets()
        except HeadraceError:
            return True
        if self.seen is None or not self._are_all_in(len(self.seen.end)):
            return True
        ends = self.seen.end
        if not self._has_columns and len(self._wanted) <= _FEW_MAX:
            return any(each.fetch_offset != ends[number] for number, each in self._wanted.items())
        self.make_columns()
        # One above the end is an error, which nobody waits for.
        return bool((self.offsets != ends[self.numbers]).any())

    def has_moved(self) -> bool:
        """Whether the client is to be told of starts or ends that moved, as last looked at."""
        return False

    def _are_all_in(self, count: int) -> bool:
        return self._lowest >= 0 and self._highest < count

    def part(self, can_block: bool) -> FetchPart:
        """The partitions as they are now; as last looked at if that may not block."""
        self.make_columns()
        if self.reader is not None:
            try:
                return self._part((None if can_block else self.seen) or self.reader.offsets())
            except Exception as error:
                self.error = error.with_traceback(None)
        assert self.error is not None
        nowhere = np.full(len(self), -1, np.int64)
        return self._chosen(nowhere, nowhere, np.full(len(self), code_of(self.error), np.int64))

    def _part(self, offsets: OffsetRange) -> FetchPart:
        count, numbers = len(offsets.end), self.numbers
        if self._are_all_in(count):
            starts, ends = offsets.start[numbers], offsets.end[numbers]
            return self._chosen(starts, ends, (~self._is_in(starts, ends)) * _OUT_OF_RANGE)
        exists = (numbers >= 0) & (numbers < count)
        known = np.where(exists, numbers, 0)
        starts, ends = np.where(exists, offsets.start[known], -1), np.where(exists, offsets.end[known], -1)
        codes = np.where(exists, (~self._is_in(starts, ends)) * _OUT_OF_RANGE, _UNKNOWN_PARTITION)
        return self._chosen(starts, ends, codes)

    def _is_in(self, starts: Int64s, ends: Int64s) -> Bools:
        return (starts <= self.offsets) & (self.offsets <= ends)

    def _chosen(self, starts: Int64s, ends: Int64s, codes: Int64s) -> FetchPart:
        """What is answered of all partitions: everything, in the order of the request."""
        return FetchPart(self, self.numbers, self.offsets, self.bytes_max, starts, ends, codes)


class SessionTopic(FetchTopic):
    """The same for a session, which changes it from request to request and is answered only news."""

    def __init__(self, ref: TopicRef, wanted: Mapping[int, Any]) -> None:
        super().__init__(ref, wanted)
        self.make_columns()
        self._wanted = {}
        self._rows = {number: row for row, number in enumerate(wanted)}
        self._starts_told, self._ends_told = np.full((2, len(wanted)), _UNTOLD, np.int64)
        # When each brought messages last, or was added: what has waited longest is read first.
        self._turns: Int64s = np.zeros(len(wanted), np.int64)

    def begin(self, turn: int) -> None:
        """Be read after everything that has waited for longer."""
        self._turns[:] = turn

    def change(self, asked: SessionTopic, turn: int) -> int:
        """Read partitions elsewhere, which keep their turn, and new ones, which get this; returns how many are new."""
        rows = np.array([self._rows.get(number, -1) for number in asked.numbers.tolist()], np.int64)
        is_known = rows >= 0
        known = rows[is_known]
        self.offsets[known], self.bytes_max[known] = asked.offsets[is_known], asked.bytes_max[is_known]
        if len(known) == len(rows):
            return 0
        new = asked.numbers[~is_known]
        self._rows |= {number: len(self) + place for place, number in enumerate(new.tolist())}
        self.numbers = np.concatenate([self.numbers, new])
        self.offsets = np.concatenate([self.offsets, asked.offsets[~is_known]])
        self.bytes_max = np.concatenate([self.bytes_max, asked.bytes_max[~is_known]])
        untold = np.full(len(new), _UNTOLD, np.int64)
        self._starts_told = np.concatenate([self._starts_told, untold])
        self._ends_told = np.concatenate([self._ends_told, untold])
        self._turns = np.concatenate([self._turns, np.full(len(new), turn, np.int64)])
        self._lowest, self._highest = min(self._lowest, asked._lowest), max(self._highest, asked._highest)
        return len(new)

    def forget(self, numbers: Sequence[int]) -> int:
        """Read partitions no more; returns how many were read. The last row takes the place of each."""
        before = len(self)
        columns = self.numbers, self.offsets, self.bytes_max, self._starts_told, self._ends_told, self._turns
        end = before
        for number in numbers:
            row = self._rows.pop(number, None)
            if row is None:
                continue
            end -= 1
            if row != end:
                for column in columns:
                    column[row] = column[end]
                self._rows[int(self.numbers[row])] = row
        self.numbers, self.offsets, self.bytes_max, self._starts_told, self._ends_told, self._turns = (
            column[:end] for column in columns
        )
        if end and not {self._lowest, self._highest}.isdisjoint(numbers):
            self._lowest, self._highest = int(self.numbers.min()), int(self.numbers.max())
        return before - end

    def has_moved(self) -> bool:
        """Whether the client is to be told of starts or ends that moved, as last looked at."""
        if self.seen is None:
            return True
        starts, ends = self.seen.start[self.numbers], self.seen.end[self.numbers]
        return bool(((starts != self._starts_told) | (ends != self._ends_told)).any())

    def _chosen(self, starts: Int64s, ends: Int64s, codes: Int64s) -> FetchPart:
        """What is answered of partitions: what is news, or may have messages. At first everything is news."""
        is_news = (codes != 0) | (starts != self._starts_told) | (ends != self._ends_told)
        rows = np.flatnonzero(is_news | (self.offsets < ends))
        asked = self.numbers[rows], self.offsets[rows], self.bytes_max[rows]
        found = starts[rows], ends[rows], codes[rows]
        return FetchPart(self, *asked, *found, is_news[rows], rows, self._turns[rows])

    def tell(self, part: FetchPart, turn: int) -> None:
        """Remember what the client is told; what brought messages is read after everything else.

        Errors are told again, until the client asks for something else.
        """
        self._starts_told[part.rows] = part.starts
        self._ends_told[part.rows] = np.where(part.codes == 0, part.ends, _UNTOLD)
        if part.records and part.rows is not None:
            self._turns[part.rows[list(part.records)]] = turn


@dataclass(slots=True)
class FetchPart:
    """Partitions of a topic as they are asked for and as they are, in columns; and what was read of some of them.

    is_news: what is answered even without messages; None for everything.
    rows, turns: for a session, where in its topic these are, and when each brought messages last.
    """

    topic: FetchTopic
    numbers: Int64s
    offsets: Int64s
    bytes_max: Int64s
    starts: Int64s
    ends: Int64s
    codes: Int64s
    is_news: Bools | None = None
    rows: Int64s | None = None
    turns: Int64s | None = None
    # By place in the columns.
    records: dict[int, bytes] = field(default_factory=dict)

    def behind(self) -> list[int]:
        """The places of what has messages, in the order in which they are read: what has waited longest comes first."""
        if self.topic.reader is None:
            # Of thousands of topics, each with one partition, every column costs.
            return []
        places = np.flatnonzero((self.codes == 0) & (self.offsets < self.ends))
        if self.turns is not None:
            places = places[np.argsort(self.turns[places], kind="stable")]
        ordered: list[int] = places.tolist()
        return ordered

    def turn_of(self, place: int) -> int:
        """When a partition brought messages last."""
        return 0 if self.turns is None else int(self.turns[place])

    def fail(self, place: int, code: int) -> None:
        """Answer with an error."""
        self.codes[place] = code
        if self.is_news is not None:
            self.is_news[place] = True

    @property
    def bytes(self) -> int:
        """How many bytes of records are answered."""
        return sum(map(len, self.records.values()))

    @property
    def errors(self) -> int:
        """How many partitions have an error."""
        return int(np.count_nonzero(self.codes))

    @property
    def elements(self) -> int:
        """How many partitions are answered."""
        if self.is_news is None:
            return len(self.numbers)
        return int(np.count_nonzero(self.is_news)) + sum(not self.is_news[place] for place in self.records)

    def answers(self) -> list[dict[str, Any]] | NumberRows:
        """The answer about each partition about which there is anything to say."""
        columns = self.numbers, self.codes, self.starts, self.ends
        places: Sequence[int] = range(len(self.numbers))
        if self.is_news is not None:
            is_told = self.is_news.copy()
            is_told[list(self.records)] = True
            places = np.flatnonzero(is_told).tolist()
            columns = self.numbers[is_told], self.codes[is_told], self.starts[is_told], self.ends[is_told]
        if len(places) > _ROWS_MIN and not self.records:
            types = np.int32, np.int16, np.int64, np.int64
            number, code, start, end = (column.astype(kind) for column, kind in zip(columns, types, strict=True))
            return NumberRows(_answer, number=number, error_code=code, start=start, end=end)
        return [
            _answer(number, code, start, end, self.records.get(place, b""))
            for place, number, code, start, end in zip(places, *(each.tolist() for each in columns), strict=True)
        ]


def _answer(number: int, error_code: int, start: int, end: int, records: bytes = b"") -> dict[str, Any]:
    return {
        "partition_index": number,
        "error_code": error_code,
        "high_watermark": end,
        "last_stable_offset": end,
        "log_start_offset": start,
        "aborted_transactions": None,
        "records": records,
    }

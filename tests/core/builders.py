"""Batches, states and a slow, obviously right model of planning, shared by the tests of the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headrace.core.hashes.columns import fnv1a64_of
from headrace.core.limits import LINK_IDLE_SECONDS, MICROSECONDS
from headrace.core.messages import PUBLISH_SCHEMA, accept
from headrace.core.publish.receipts import CONFLICT, DUPLICATE_BY_PAYLOAD, DUPLICATE_BY_SOURCE, WRITTEN, Receipts
from headrace.core.publish.sources import NO_LINK, NOTHING_WRITTEN, Source
from headrace.core.publish.state import Commit, TopicState
from headrace.core.topics.settings import DEFAULT_SETTINGS, TopicSettings

NOW_US = 1_700_000_000 * MICROSECONDS
DAY_US = 24 * 3600 * MICROSECONDS
LINK_IDLE_US = LINK_IDLE_SECONDS * MICROSECONDS


def publish_batch(**columns: Any) -> pa.RecordBatch:
    """A batch of the given columns; lists become arrays of the canonical type."""
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, PUBLISH_SCHEMA.field(name).type)
        for name, column in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def accepted(partitions: int = 4, settings: TopicSettings = DEFAULT_SETTINGS, **columns: Any) -> pa.RecordBatch:
    """A canonical batch of the given columns."""
    return accept(publish_batch(**columns), settings, partitions)


def new_state(partitions: int = 4) -> TopicState:
    """A topic that was just created."""
    return TopicState(np.zeros(partitions, np.int64))


@dataclass(frozen=True)
class Row:
    """One message as a publisher gives it."""

    value: bytes = b""
    key: bytes | None = None
    producer_id: str | None = None
    message_group_id: str | None = None
    seqno: int | None = None
    partition: int | None = None
    attributes: tuple[tuple[str, bytes], ...] | None = None

    @property
    def source(self) -> Source | None:
        return (self.producer_id, self.message_group_id or "") if self.producer_id else None

    @property
    def number(self) -> int:
        return NOTHING_WRITTEN if self.seqno is None else self.seqno

    @property
    def message(self) -> tuple[bytes, bytes]:
        """What a retry has in common with the message it repeats."""
        return self.key or b"", self.value


COLUMNS = ("value", "key", "producer_id", "message_group_id", "seqno", "partition", "attributes")


def batch_of(rows: Sequence[Row], before: Sequence[Row] = (), after: Sequence[Row] = ()) -> pa.RecordBatch:
    """The rows as Arrow, cut out of a larger batch that also holds the rows before and after."""
    every = [*before, *rows, *after]
    columns = {name: [getattr(row, name) for row in every] for name in COLUMNS}
    return publish_batch(**columns).slice(len(before), len(rows))


def row_strategy(
    partitions: int,
    *,
    seqno: st.SearchStrategy[int | None] | None = None,
    explicit: bool = True,
    values: st.SearchStrategy[bytes] | None = None,
) -> st.SearchStrategy[Row]:
    """Valid rows of few distinct ids, keys, values and seqnos, so that they meet each other."""
    numbers = st.none() | st.integers(0, 6) if seqno is None else seqno
    payloads = st.sampled_from([b"", b"a", b"b", b"c", b"dd" * 40]) if values is None else values
    chosen = st.none() | st.none() | st.integers(0, partitions - 1) if explicit else st.none()
    attributes = st.none() | st.lists(st.tuples(st.sampled_from("xyz"), st.binary(max_size=3)), max_size=2).map(tuple)
    keys = st.none() | st.none() | st.sampled_from([b"", b"k1", b"k2", b"longer key"])
    sourced = st.builds(
        Row,
        value=payloads,
        key=keys,
        producer_id=st.sampled_from(["p", "q", "r"]),
        message_group_id=st.sampled_from([None, "", "g"]),
        seqno=numbers,
        partition=chosen,
        attributes=attributes,
    )
    sourceless = st.builds(
        Row,
        value=payloads,
        key=keys,
        producer_id=st.sampled_from([None, ""]),
        message_group_id=st.sampled_from([None, ""]),
        partition=chosen,
        attributes=attributes,
    )
    return sourced | sourced | sourceless


@dataclass
class Known:
    """What the model knows of a source."""

    seqno: int = NOTHING_WRITTEN
    link: int = NO_LINK
    used_us: int = 0
    # The message with that seqno.
    message: tuple[bytes, bytes] | None = field(default=None, compare=False)


@dataclass
class Model:
    """A topic, message by message, in plain Python. `publish` answers outcome, partition and offset of each row."""

    partitions: int
    log: list[list[Row]] = field(init=False)
    round_robin: int = 0
    sources: dict[Source, Known] = field(default_factory=dict)
    payloads: dict[bytes, int] = field(default_factory=dict)
    last_time_us: int = 0

    def __post_init__(self) -> None:
        self.log = [[] for _ in range(self.partitions)]

    def publish(self, rows: Sequence[Row], settings: TopicSettings, now_us: int) -> list[tuple[int, int, int]]:
        self.last_time_us = max(now_us, self.last_time_us + 1)
        outcomes = self._by_source(rows, settings)
        if settings.deduplication == "payload":
            self._by_payload(rows, outcomes, settings)
        kept = [row for row, outcome in zip(rows, outcomes, strict=True) if outcome == WRITTEN]
        partitions = iter(self._place(kept))
        receipts = []
        for row, outcome in zip(rows, outcomes, strict=True):
            if outcome == WRITTEN:
                partition = next(partitions)
                receipts.append((WRITTEN, partition, len(self.log[partition])))
                self.log[partition].append(row)
            else:
                receipts.append((outcome, -1, -1))
        return receipts

    def _by_source(self, rows: Sequence[Row], settings: TopicSettings) -> list[int]:
        highest = {source: known.seqno for source, known in self.sources.items()}
        messages = {(source, known.seqno): known.message for source, known in self.sources.items()}
        outcomes = []
        for row in rows:
            outcome = WRITTEN
            if row.source is not None and row.seqno is not None and settings.deduplication != "off":
                if row.seqno <= highest.get(row.source, NOTHING_WRITTEN):
                    is_last = row.seqno == highest[row.source]
                    known = messages.get((row.source, row.seqno)) if is_last else None
                    outcome = DUPLICATE_BY_SOURCE if known in (None, row.message) else CONFLICT
                else:
                    highest[row.source] = row.seqno
                    messages[row.source, row.seqno] = row.message
            outcomes.append(outcome)
        return outcomes

    def _by_payload(self, rows: Sequence[Row], outcomes: list[int], settings: TopicSettings) -> None:
        after_us = self.last_time_us - settings.deduplication_window_seconds * MICROSECONDS
        for index, row in enumerate(rows):
            if outcomes[index] == WRITTEN:
                if self.payloads.get(row.value, after_us) > after_us:
                    outcomes[index] = DUPLICATE_BY_PAYLOAD
                else:
                    self.payloads[row.value] = self.last_time_us

    def _place(self, rows: Sequence[Row]) -> list[int]:
        links = {row.source: self._link(row.source, rows) for row in rows if row.source is not None}
        partitions = []
        for row in rows:
            if row.partition is not None:
                partitions.append(row.partition)
            elif row.key:
                partitions.append(fnv1a64_of(row.key) % self.partitions)
            elif row.source is None:
                partitions.append(self._tick())
            else:
                if links[row.source] == NO_LINK:
                    links[row.source] = self._tick()
                partitions.append(links[row.source])
        # In the order in which they are stored.
        for _, row in sorted(zip(partitions, rows, strict=True), key=lambda placed: placed[0]):
            if row.source is not None:
                known = self.sources.setdefault(row.source, Known())
                if row.seqno is not None and row.seqno >= known.seqno:
                    known.seqno, known.message = row.seqno, row.message
                known.link = links[row.source]
                known.used_us = self.last_time_us
        return partitions

    def _link(self, source: Source, rows: Sequence[Row]) -> int:
        """The living link, or the one that a row makes by naming a partition; open rows make theirs in turn."""
        known = self.sources.get(source)
        if known and known.link != NO_LINK and known.used_us > self.last_time_us - LINK_IDLE_US:
            return known.link
        binding = [row for row in rows if row.source == source and not row.key]
        lowest = min((row.number for row in binding), default=0)
        named = [row.partition for row in binding if row.number == lowest and row.partition is not None]
        return min(named, default=NO_LINK)

    def _tick(self) -> int:
        self.round_robin += 1
        return (self.round_robin - 1) % self.partitions


def receipts_of(receipts: Receipts) -> list[tuple[int, int, int]]:
    """Receipts as the model gives them."""
    columns = (receipts.outcome.tolist(), receipts.partition.tolist(), receipts.offset.tolist())
    return list(zip(*columns, strict=True))


def sources_of(state: TopicState) -> dict[Source, Known]:
    """A state's source table as the model has it."""
    return {
        (row["producer_id"], row["message_group_id"]): Known(row["seqno"], row["link"], row["used_us"])
        for row in state.sources.snapshot().to_pylist()
    }


def written_rows(commit: Commit) -> dict[int, tuple[int, list[Row]]]:
    """What a commit holds: by partition the first offset and the rows, without the partitions they asked for."""
    directory = commit.directory
    rows = [
        Row(**{name: _plain(values.get(name)) for name in COLUMNS if name != "partition"})
        for values in commit.rows.to_pylist()
    ]
    places = zip(directory.partition, directory.first_offset, directory.first_row, directory.rows, strict=True)
    return {
        int(partition): (int(offset), rows[int(first) : int(first) + int(count)])
        for partition, offset, first, count in places
    }


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

"""Reads one split in a task, as Arrow batches that Spark uses without conversion.

    broker ── Flight ──► prefetch thread ── at most two batches ──► read() ──► Spark

Memory is bounded by a few batches of a few megabytes, however large the split is. Columns are taken over without a
copy; compressed values are decompressed. What a range itself says of its rows is not sent by the broker but added
here: `topic` and, where all rows are of one partition, `partition` and `offset`. A broken connection is reopened, and
reading continues at the next offset. A value that cannot be decoded by its codec is an error that names
the message, or is returned raw with its codec, or is skipped, depending on the option `onUndecodable`.

Messages that were deleted after the split was planned, by retention or with their topic, are lost: an error that names
them or, with failOnDataLoss=false, a warning in the log.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.client.read.decode import Broken, Decoder, OnUndecodable, Packed, Piece, is_packed
from headrace.client.read.scan import remaining
from headrace.client.retry import Backoff
from headrace.core.errors import OffsetOutOfRange, ServerFailed
from headrace.core.lists import numbers
from headrace.spark.connection import Connection
from headrace.spark.reader.data_loss import DataLoss, kept_of
from headrace.spark.reader.splits import PartitionKey, Range, Split
from headrace.spark.reader.topic_selection import DELETED, TopicSelection
from headrace.spark.start.worker_tuning import settle

_BATCH_MESSAGES: Final = 1 << 16
_BATCH_BYTES: Final = 8 << 20
_AHEAD_BATCHES: Final = 2
# A thread that waits for an unreachable broker is abandoned; it ends with its process.
_LEAVE_SECONDS: Final = 5.0


class _Stored(NamedTuple):
    """A batch of a topic as the broker has it, with the partitions and offsets of its rows."""

    topic: str
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class SplitReader:
    """How splits are read. It travels to the executors."""

    connection: Connection
    schema: pa.Schema
    decode: bool
    fail_on_data_loss: bool
    on_undecodable: OnUndecodable = "raise"

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The batches of a split."""
        settle()
        with _Prefetch(self._of_split(split)) as batches:
            for stored in batches:
                for batch in self._decoded(stored):
                    yield self._as_spark_wants(stored.topic, batch)

    def decoded(self, topic: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of a topic that came another way, with their partitions and offsets, as `read` would give them."""
        for batch in batches:
            for part in self._decoded(_Stored(topic, batch)):
                yield self._as_spark_wants(topic, part)

    def _of_split(self, split: Split) -> Iterator[_Stored]:
        """The ranges of a topic in one request if there are several."""
        topics: dict[int, list[Range]] = {}
        for part in split.ranges:
            topics.setdefault(part.of.topic_id, []).append(part)
        for parts in topics.values():
            yield from self._stored(parts[0]) if len(parts) == 1 else self._stored_together(parts)

    def _stored_together(self, parts: list[Range]) -> Iterator[_Stored]:
        """The batches of many partitions of a topic, each of rows of many of them, past what is lost."""
        topic_id, topic, _ = parts[0].of
        left: dict[int, tuple[int, int]] = {}
        for part in parts:
            # Neighbours that are of one partition are one range.
            start = left.get(part.of.partition, (part.start, 0))[0]
            left[part.of.partition] = (start, part.end)
        # Rows of several partitions are mixed in a batch, so each must say where it is from.
        columns = list(dict.fromkeys([*self._wire_columns(), "partition", "offset"]))
        client, patience = self.connection.client(), self.connection.timeout_seconds
        backoff = Backoff(patience)
        while left:
            try:
                for batch in client.scan_ranges(
                    topic,
                    left,
                    columns=columns,
                    max_messages=_BATCH_MESSAGES,
                    max_bytes=_BATCH_BYTES,
                    timeout_seconds=patience,
                    topic_id=topic_id,
                ):
                    left = remaining(left, batch)
                    backoff = Backoff(patience)
                    yield _Stored(topic, batch)
            except (OffsetOutOfRange, *DELETED):
                # What is lost is found below.
                pass
            if left:
                kept = self._kept(topic_id, topic, left)
                if kept == left and not backoff.wait():
                    raise ServerFailed(f"it returned nothing for {len(left)} partitions of topic {topic!r}")
                left = kept

    def _kept(self, topic_id: int, topic: str, left: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """What is still there of ranges that a server did not give."""
        ranges = {PartitionKey(topic_id, topic, partition): bounds for partition, bounds in left.items()}
        kept, losses = kept_of(ranges, TopicSelection(self.connection, (topic,)).look(may_lack=True))
        losses.face(self.fail_on_data_loss)
        return {place.partition: bounds for place, bounds in kept.items()}

    def _stored(self, part: Range) -> Iterator[_Stored]:
        """The batches as the broker has them, past what is lost."""
        client, patience, offset = self.connection.client(), self.connection.timeout_seconds, part.start
        # A row of no columns has no length.
        columns = [name for name in self._wire_columns() if name not in ("partition", "offset")] or ["partition"]
        backoff = Backoff(patience)
        while offset < part.end:
            gap_end = offset
            try:
                for batch in client.scan(
                    part.of.topic,
                    part.of.partition,
                    offset,
                    part.end,
                    columns=columns,
                    max_messages=_BATCH_MESSAGES,
                    max_bytes=_BATCH_BYTES,
                    timeout_seconds=patience,
                    topic_id=part.of.topic_id,
                ):
                    stored = _Stored(part.of.topic, _placed(batch, part.of.partition, offset))
                    offset += batch.num_rows
                    backoff = Backoff(patience)
                    yield stored
            except OffsetOutOfRange as late:
                gap_end = min(late.start, part.end) if late.offset == offset else offset
            except DELETED:
                # Whether another topic has its name is found below.
                pass
            if offset < gap_end:
                DataLoss({part.of: (offset, gap_end)}).face(self.fail_on_data_loss)
                offset = gap_end
            elif offset < part.end:
                offset = self._resumed(part.of, offset, part.end)
                if offset < part.end and not backoff.wait():
                    raise ServerFailed(f"it returned nothing for partition {part.of.partition} from offset {offset} on")

    def _resumed(self, of: PartitionKey, offset: int, end: int) -> int:
        """Where a read that ended early continues: there if the server was about to stop, or past what is lost."""
        kept = self._kept(of.topic_id, of.topic, {of.partition: (offset, end)})
        return kept[of.partition][0] if of.partition in kept else end

    def _wire_columns(self) -> list[str]:
        names = [name for name in self.schema.names if name != "topic"]
        if self.decode and "value" in names and "codec" not in names:
            names.append("codec")
        return names

    def _decoded(self, stored: _Stored) -> Iterator[pa.RecordBatch]:
        """A batch with plain values, in parts where that takes much memory or something cannot be decoded."""
        if not self.decode or "value" not in stored.batch.schema.names or not is_packed(stored.batch):
            yield stored.batch
            return
        decoder = Decoder(stored.topic, self.on_undecodable)
        left: list[Piece] = [Packed(stored.batch)]
        while left:
            piece = left.pop(0)
            if isinstance(piece, Broken):
                raise piece.error
            if isinstance(piece, Packed):
                left = [*decoder.pieces(piece.batch), *left]
            elif isinstance(piece, pa.RecordBatch):
                yield piece

    def _as_spark_wants(self, topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if "topic" in self.schema.names:
            columns["topic"] = _repeated(topic, batch.num_rows)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def _placed(batch: pa.RecordBatch, partition: int, offset: int) -> pa.RecordBatch:
    """Rows of one partition from `offset` on, with their partition and offsets."""
    partitions = np.full(batch.num_rows, partition, np.int32)
    offsets = np.arange(offset, offset + batch.num_rows, dtype=np.int64)
    unplaced = batch.drop_columns(["partition"]) if "partition" in batch.schema.names else batch
    columns = [*unplaced.columns, numbers(pa.int32(), partitions), numbers(pa.int64(), offsets)]
    return pa.RecordBatch.from_arrays(columns, [*unplaced.schema.names, "partition", "offset"])


def _repeated(topic: str, rows: int) -> pa.Array:
    """A topic's name for each row. Not cached: it takes a hundredth of the time that reading the rows does."""
    name = topic.encode()
    # Laid out here, since Arrow imports pandas to make an array or a scalar of Python objects.
    bounds = np.arange(rows + 1, dtype=np.int32) * len(name)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(bounds), pa.py_buffer(name * rows))


class _Prefetch:
    """The next batches, read by a thread while the last one is used."""

    def __init__(self, batches: Iterable[_Stored]) -> None:
        self._batches = batches
        self._ready: queue.Queue[_Stored | BaseException | None] = queue.Queue(_AHEAD_BATCHES)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-prefetch", daemon=True)

    def __enter__(self) -> Iterator[_Stored]:
        self._thread.start()
        return self._taken()

    def __exit__(self, *ended: object) -> None:
        """A reader that wants no more, as with a limit, leaves before the end."""
        self._over.set()
        deadline = time.monotonic() + _LEAVE_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            try:
                self._ready.get_nowait()
            except queue.Empty:
                self._thread.join(0.01)

    def _taken(self) -> Iterator[_Stored]:
        while (taken := self._ready.get()) is not None:
            if isinstance(taken, BaseException):
                raise taken
            yield taken

    def _run(self) -> None:
        """The top of the thread."""
        try:
            for batch in self._batches:
                if self._over.is_set():
                    return
                self._ready.put(batch)
            self._ready.put(None)
        except BaseException as error:
            self._ready.put(error)

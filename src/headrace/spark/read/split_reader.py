"""What a task reads: one split, as Arrow batches that are Spark's as they are.

    broker ── Flight ──► prefetch thread ── at most two batches ──► read() ──► Spark

Memory is bounded by a few batches of a few megabytes, however large the split is. Columns are taken over without a
copy; compressed values are decompressed, and `topic`, which is not stored, is added. A connection that breaks is made
again, and reading goes on at the next offset.

Messages that retention took since the split was planned are lost: they are an error that names them or, if the reader
says so, a line in the log.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.client.backoff import Backoff
from headrace.core.codecs import columns as codecs
from headrace.core.errors import OffsetOutOfRange, ServerFailed
from headrace.spark.connection import Connection
from headrace.spark.read.data_loss import DataLoss, kept_of
from headrace.spark.read.splits import Range, Split
from headrace.spark.start.worker_tuning import settle

_BATCH_MESSAGES: Final = 1 << 16
_BATCH_BYTES: Final = 8 << 20
_AHEAD_BATCHES: Final = 2
# A thread that waits for a broker that is away is left behind; it ends with its process.
_LEAVE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class SplitReader:
    """How splits of a topic are read. It travels to the executors."""

    connection: Connection
    topic: str
    schema: pa.Schema
    decode: bool
    fail_on_data_loss: bool

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The batches of a split."""
        settle()
        with _Prefetch(batch for part in split.ranges for batch in self._stored(part)) as batches:
            for batch in batches:
                yield self._as_spark_wants(batch)

    def _stored(self, part: Range) -> Iterator[pa.RecordBatch]:
        """The batches as the broker has them, past what is lost."""
        client, patience, offset = self.connection.client(), self.connection.timeout_seconds, part.start
        backoff = Backoff(patience)
        while offset < part.end:
            gap_end = offset
            try:
                for batch in client.scan(
                    self.topic,
                    part.partition,
                    offset,
                    part.end,
                    columns=self._wire_columns(),
                    max_messages=_BATCH_MESSAGES,
                    max_bytes=_BATCH_BYTES,
                    timeout_seconds=patience,
                ):
                    offset += batch.num_rows
                    backoff = Backoff(patience)
                    yield batch
            except OffsetOutOfRange as late:
                gap_end = min(late.start, part.end) if late.offset == offset else offset
            if offset < gap_end:
                DataLoss({part.partition: (offset, gap_end)}).face(self.topic, self.fail_on_data_loss)
                offset = gap_end
            elif offset < part.end:
                offset = self._resumed(part.partition, offset, part.end)
                if offset < part.end and not backoff.wait():
                    raise ServerFailed(f"it gives nothing of partition {part.partition} from offset {offset} on")

    def _resumed(self, partition: int, offset: int, end: int) -> int:
        """Where reading goes on that ended early: right there if the server was about to stop, or past what is lost."""
        present = self.connection.call(lambda client: client.offsets(self.topic))
        kept, losses = kept_of({partition: (offset, end)}, present)
        losses.face(self.topic, self.fail_on_data_loss)
        return kept[partition][0] if partition in kept else end

    def _wire_columns(self) -> list[str]:
        names = [name for name in self.schema.names if name != "topic"]
        if self.decode and "value" in names and "codec" not in names:
            names.append("codec")
        # A row of no columns has no length.
        return names or ["partition"]

    def _as_spark_wants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if self.decode and "value" in columns:
            codec = columns["codec"]
            if codec.null_count < len(codec):
                columns["value"] = codecs.decode(columns["value"], codec)
                columns["codec"] = pa.nulls(batch.num_rows, pa.string())
        if "topic" in self.schema.names:
            columns["topic"] = _repeated(self.topic).slice(0, batch.num_rows)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


@functools.cache
def _repeated(topic: str) -> pa.Array:
    """A topic's name as often as a batch has rows at most; batches take a part of it."""
    name = topic.encode()
    # Laid out here, since Arrow imports pandas to make an array or a scalar of Python objects.
    bounds = np.arange(_BATCH_MESSAGES + 1, dtype=np.int32) * len(name)
    return pa.StringArray.from_buffers(_BATCH_MESSAGES, pa.py_buffer(bounds), pa.py_buffer(name * _BATCH_MESSAGES))


class _Prefetch:
    """The next batches, read by a thread while the last one is used."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self._ready: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(_AHEAD_BATCHES)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-prefetch", daemon=True)

    def __enter__(self) -> Iterator[pa.RecordBatch]:
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

    def _taken(self) -> Iterator[pa.RecordBatch]:
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

"""Uploads: batches that come in are published while the next ones are read.

One thread reads the stream into a short queue, and this one publishes everything that has come meanwhile at once, so
that small batches share a sync. Receipts go back in the order sent. An error ends the stream: what was acknowledged
before it is written, what came after it is not.
"""

from __future__ import annotations

import queue
import threading
from typing import Final

import pyarrow as pa
from pyarrow import flight

from headrace.broker import Broker
from headrace.core.errors import HeadraceError
from headrace.core.planning import CommitKey, Receipts
from headrace.wire.tickets import Publish, Stage, Upload

_AHEAD_BATCHES: Final = 64
_PATIENCE_SECONDS: Final = 0.5


def upload(
    broker: Broker, command: Upload, reader: flight.MetadataRecordBatchReader, writer: flight.FlightMetadataWriter
) -> None:
    """Take a whole stream in."""
    incoming = _Incoming(reader)
    if isinstance(command, Stage):
        _stage(broker, command, incoming, writer)
    else:
        _publish(broker, command, incoming, writer)
    incoming.raise_failure()


def _publish(broker: Broker, command: Publish, incoming: _Incoming, writer: flight.FlightMetadataWriter) -> None:
    number = command.first_number
    while batches := incoming.take():
        outcomes: list[Receipts | Exception]
        if command.writer is None:
            outcomes = broker.publish_many(command.topic, batches)
        else:
            keys = [CommitKey(command.writer, number + place) for place in range(len(batches))]
            outcomes = [broker.publish(command.topic, batch, key) for batch, key in zip(batches, keys, strict=True)]
            number += len(batches)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                incoming.close()
                raise outcome
            writer.write(outcome.to_arrow().serialize())


def _stage(broker: Broker, command: Stage, incoming: _Incoming, writer: flight.FlightMetadataWriter) -> None:
    rows = 0
    while batches := incoming.take():
        for batch in batches:
            rows = broker.stage(command.topic, batch, command.stage).rows
    writer.write(pa.py_buffer(str(rows).encode()))


class _Incoming:
    """Batches of a stream, read ahead by a thread of its own."""

    def __init__(self, reader: flight.MetadataRecordBatchReader) -> None:
        self._reader = reader
        self._queue: queue.Queue[pa.RecordBatch | None] = queue.Queue(_AHEAD_BATCHES)
        self._failure: Exception | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._read_all, name="headrace-flight-upload", daemon=True)
        self._thread.start()

    def take(self) -> list[pa.RecordBatch]:
        """All batches that are there, at least one; none at the end of the stream."""
        first = self._queue.get()
        batches: list[pa.RecordBatch] = []
        while first is not None:
            batches.append(first)
            try:
                first = self._queue.get_nowait()
            except queue.Empty:
                return batches
        self._queue.put(None)
        return batches

    def close(self) -> None:
        """Read no more."""
        self._closed = True

    def raise_failure(self) -> None:
        """Say what broke the stream, if anything did."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _read_all(self) -> None:
        try:
            for chunk in self._reader:
                if not self._put(chunk.data):
                    break
        except (HeadraceError, pa.ArrowException, OSError, StopIteration) as error:
            self._failure = error
        finally:
            self._put(None)

    def _put(self, batch: pa.RecordBatch | None) -> bool:
        """Wait for room; whether anyone still wants it."""
        while not self._closed:
            try:
                self._queue.put(batch, timeout=_PATIENCE_SECONDS)
                return True
            except queue.Full:
                continue
        return False

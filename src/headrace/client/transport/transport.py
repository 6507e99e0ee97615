"""The transport protocol of a client: calls, uploads and reads. Implemented by Flight, and by a broker in process.

All methods raise errors of the core tree only. `Unreachable` means that nothing was done, `AnswerLost` that it may have
been.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pyarrow as pa

from headrace.wire.native import Record, WrittenAt
from headrace.wire.operations import Answer, Operation
from headrace.wire.tickets import Reading, Upload


class UploadStream(Protocol):
    """A stream of batches to the broker, and their answers. One thread may write while another reads."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch; blocks while the other side is busy."""

    def finish(self) -> None:
        """Signal that nothing more will be written."""

    def read(self) -> pa.Buffer | None:
        """Wait for the next answer; None at the end."""


@runtime_checkable
class DirectUpload(UploadStream, Protocol):
    """An upload that needs no thread: a caller writes a message and reads its answer. One thread reads at a time."""

    def is_usable(self) -> bool:
        """Whether a message may be written while nothing is under way; false if it ended, or may end soon."""

    def write_message(self, record: Record) -> None:
        """Send one message."""

    def has_answer(self, timeout_seconds: float) -> bool:
        """Whether there is something to read in time."""

    def has_whole_answer(self) -> bool:
        """Whether the next answer, or the end, can be read without a wait; for the thread that reads."""

    def read_answer(self) -> pa.Buffer | WrittenAt | None:
        """Wait for the next answer; None at the end."""

    def cancel(self) -> None:
        """End it; whoever reads gets an error."""


class ReadStream(Protocol):
    """A stream of batches from the broker. One thread reads; any may cancel."""

    def read(self) -> pa.RecordBatch | None:
        """Wait for the next batch; None at the end."""

    def cancel(self) -> None:
        """Cancel the stream."""


class Transport(Protocol):
    """A transport to a broker. Thread-safe."""

    def call(self, operation: Operation[Answer]) -> Answer:
        """Perform an operation and return its answer."""

    def upload(self, command: Upload, schema: pa.Schema) -> UploadStream:
        """Start to publish or to stage."""

    def read(self, ticket: Reading) -> ReadStream:
        """Start to read."""

    def close(self) -> None:
        """Close everything."""

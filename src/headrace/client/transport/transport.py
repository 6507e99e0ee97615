"""What a client needs of whatever carries it to a broker: calls, uploads and readings. Two things do it: Flight, and
a broker in the same process.

Everything raises errors of the core tree only. `Unreachable` means that nothing was done, `AnswerLost` that it may
have been.
"""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from headrace.wire.operations import Operation
from headrace.wire.tickets import Reading, Upload


class UploadStream(Protocol):
    """Batches on their way in, and their answers. One thread may write while another reads."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch; it waits while the other end is busy."""

    def finish(self) -> None:
        """Nothing more will be written."""

    def read(self) -> pa.Buffer | None:
        """Wait for the next answer; none at the end."""


class ReadStream(Protocol):
    """Batches on their way out. One thread reads; any may cancel."""

    def read(self) -> pa.RecordBatch | None:
        """Wait for the next batch; none at the end."""

    def cancel(self) -> None:
        """Want no more."""


class Transport(Protocol):
    """The way to a broker. Safe for threads."""

    def call(self, operation: Operation) -> Any:
        """Do an operation and give its answer."""

    def upload(self, command: Upload, schema: pa.Schema) -> UploadStream:
        """Begin to publish or to stage."""

    def read(self, ticket: Reading) -> ReadStream:
        """Begin to read."""

    def close(self) -> None:
        """Let go of everything."""

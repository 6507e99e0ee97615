"""Publishes lines: the work of `headrace produce`. A producer of the client retries where that is safe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.lines import batches_of, whole_of
from headrace.cli.messages.parsers import Columns, LineParser
from headrace.cli.remote.connection import failure_of
from headrace.cli.terminal.output import print_note
from headrace.cli.terminal.progress import progress
from headrace.client import Client, Producer
from headrace.core.codecs import columns as codecs
from headrace.core.errors import HeadraceError, InvalidMessage
from headrace.core.messages import ATTRIBUTES


@dataclass(frozen=True, slots=True)
class Shape:
    """How lines become messages: their parser, and the fields of every message."""

    parser: LineParser
    producer_id: str | None
    resume: str | None
    partition: int | None
    attributes: Mapping[str, bytes]
    codec: str

    def batch(self, lines: pa.Array, first_line: int) -> pa.RecordBatch:
        """Lines as a batch to publish. With `resume` their numbers are seqnos; else a producer with an id adds them."""
        rows, columns = len(lines), self.parser.columns(lines, first_line)
        if self.attributes:
            self._add_attributes(columns, rows)
        if self.codec != "raw":
            if "codec" in columns:
                lines_given = f"lines {first_line:,} to {first_line + rows - 1:,}"
                raise Failure(
                    Exit.USAGE, f"--codec is {self.codec!r}: the messages of {lines_given} have a codec already"
                )
            columns["value"] = codecs.encode(columns["value"], self.codec)
            columns["codec"] = pa.repeat(self.codec, rows)
        if self.resume is not None:
            columns["producer_id"] = pa.repeat(self.producer_id, rows)
            columns["message_group_id"] = pa.repeat(self.resume, rows)
            columns["seqno"] = pa.array(np.arange(first_line, first_line + rows, dtype=np.int64))
        if self.partition is not None:
            columns["partition"] = pa.array(np.full(rows, self.partition, np.int32))
        return pa.record_batch(columns)

    def _add_attributes(self, columns: Columns, rows: int) -> None:
        """The same attributes in every row; those of the line itself win."""
        if "attributes" not in columns:
            one = pa.array([list(self.attributes.items())], ATTRIBUTES)
            columns["attributes"] = one.take(pa.array(np.zeros(rows, np.int64)))
            return
        merged = [list({**self.attributes, **dict(own or ())}.items()) for own in columns["attributes"].to_pylist()]
        columns["attributes"] = pa.array(merged, ATTRIBUTES)


@dataclass(frozen=True, slots=True)
class Input:
    """Where messages come from: files, or stdin without any, divided by a delimiter, or each as a whole."""

    files: Sequence[Path]
    delimiter: bytes
    is_whole: bool
    batch: int

    def batches(self) -> Iterator[pa.Array]:
        """The lines of all files, in batches."""
        for file in self.files or [Path("-")]:
            with _opened(file) as source:
                yield from [whole_of(source)] if self.is_whole else batches_of(source, self.batch, self.delimiter)

    @property
    def bytes(self) -> int | None:
        """The size of all files, if it is known."""
        sizes = [os.stat(file).st_size if file.exists() else 0 for file in self.files]
        return (sum(sizes) if self.files else os.fstat(sys.stdin.fileno()).st_size) or None


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    if str(file) == "-":
        yield sys.stdin.fileno()
        return
    try:
        source = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot read {file}: {error.strerror}") from None
    try:
        yield source
    except IsADirectoryError:
        raise Failure(Exit.USAGE, f"cannot read {file}: it is a directory") from None
    finally:
        os.close(source)


class Publishing:
    """Sends batches one after another and counts the outcomes."""

    def __init__(self, producer: Producer, shape: Shape) -> None:
        self._producer = producer
        self._shape = shape
        self.lines = 0
        self.written = 0
        self.duplicates = 0
        self.conflicts = 0

    def send(self, lines: pa.Array) -> None:
        """Publish lines in one commit; an error that names a row is reported with its line number."""
        try:
            statuses = self._producer.send_batch(self._shape.batch(lines, self.lines + 1)).column("status")
        except InvalidMessage as error:
            line = str(error).removeprefix(f"row {error.row}: ")
            raise Failure(Exit.REFUSED, f"line {self.lines + error.row + 1}: {line}") from None
        except HeadraceError as error:
            raise failure_of(error) from None
        written = int(pc.sum(pc.equal(statuses, "written")).as_py())
        conflicts = int(pc.sum(pc.equal(statuses, "conflict")).as_py())
        if self._shape.resume is None and self._shape.producer_id is not None:
            # Another producer with the id is fenced, so these are repetitions of this one after a lost answer.
            written = len(lines) - conflicts
        self.lines += len(lines)
        self.written += written
        self.duplicates += len(lines) - written - conflicts
        self.conflicts += conflicts

    def summary(self) -> str:
        """A summary of what was written so far."""
        duplicates = f", {self.duplicates:,} already written" if self.duplicates else ""
        conflicts = f", {self.conflicts:,} in conflict" if self.conflicts else ""
        return f"{self.written:,} of {self.lines:,} lines written{duplicates}{conflicts}"


def publish(client: Client, topic: str, shape: Shape, given: Input, retry_seconds: float) -> Publishing:
    """Publish all that is given."""
    producer_id = None if shape.resume is not None else shape.producer_id
    is_typed = not given.files and sys.stdin.isatty()
    with client.producer(topic, producer_id, linger_seconds=0.0, timeout_seconds=retry_seconds) as producer:
        if is_typed:
            print_note("type one message per line; end with Ctrl-D")
        publishing = Publishing(producer, shape)
        with progress(topic, given.bytes, "lines", not is_typed) as bar:
            try:
                for lines in given.batches():
                    publishing.send(lines)
                    bar.advance(len(lines), lines.nbytes)
            except Failure as failure:
                raise Failure(failure.exit, f"{failure} ({publishing.summary()})") from None
    return publishing


def check_codec(codec: str) -> None:
    """Check, before anything is sent, that the codec is known and its library installed."""
    try:
        codecs.compress(b"", codec)
    except HeadraceError as error:
        raise Failure(Exit.USAGE, f"--{error}") from None

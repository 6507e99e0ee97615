"""Publishes lines: the work of `headrace produce`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.lines import batches_of, split_keys
from headrace.cli.messages.senders import FlightSender, HttpSender, LineSender, RowRefused
from headrace.cli.options import connected, is_flight
from headrace.cli.output import print_note
from headrace.cli.remote import flight
from headrace.core.codecs import columns as codecs
from headrace.core.errors import HeadraceError
from headrace.core.messages import ATTRIBUTES


@dataclass(frozen=True, slots=True)
class Shape:
    """How lines become messages: the key separator, and the fields of every message."""

    separator: bytes | None
    producer_id: str | None
    resume: str | None
    partition: int | None
    attributes: Mapping[str, bytes]
    codec: str

    @property
    def continues(self) -> bool:
        """Whether seqnos continue after the last one of the producer."""
        return self.producer_id is not None and self.resume is None

    def batch(self, lines: pa.Array, first_seqno: int | None) -> pa.RecordBatch:
        """Lines as a batch to publish; without a seqno, the sender adds the source later."""
        rows, columns = len(lines), {"value": lines}
        if self.separator is not None:
            columns["key"], columns["value"] = split_keys(lines, self.separator)
        if self.attributes:
            columns["attributes"] = self._attributes(rows)
        if self.codec != "raw":
            columns["value"] = codecs.encode(columns["value"], self.codec)
            columns["codec"] = pa.repeat(self.codec, rows)
        if self.producer_id is not None and first_seqno is not None:
            columns["producer_id"] = pa.repeat(self.producer_id, rows)
            if self.resume is not None:
                columns["message_group_id"] = pa.repeat(self.resume, rows)
            columns["seqno"] = pa.array(np.arange(first_seqno, first_seqno + rows, dtype=np.int64))
        if self.partition is not None:
            columns["partition"] = pa.array(np.full(rows, self.partition, np.int32))
        return pa.record_batch(columns)

    def _attributes(self, rows: int) -> pa.Array:
        """The same attributes in every row."""
        one = pa.array([list(self.attributes.items())], ATTRIBUTES)
        return one.take(pa.array(np.zeros(rows, np.int64)))


class Publishing:
    """Sends batches one after another and counts the outcomes.

    With --resume lines are numbered from 1, otherwise after the last seqno of their producer.
    """

    def __init__(self, sender: LineSender, shape: Shape) -> None:
        self._sender = sender
        self._shape = shape
        self._behind = sender.last_seqno(str(shape.producer_id)) if shape.continues else 0
        self.lines = 0
        self.written = 0
        self.duplicates = 0
        self.conflicts = 0

    def send(self, lines: pa.Array) -> None:
        """Publish lines in one commit; an error that names a row is reported with its line number."""
        try:
            first_seqno = None if self._behind is None else self._behind + self.lines + 1
            statuses = self._sender.send(self._shape.batch(lines, first_seqno))
        except RowRefused as refused:
            raise Failure(refused.exit, f"line {self.lines + refused.row + 1}: {refused}") from None
        written = int(pc.sum(pc.equal(statuses, "written")).as_py())
        conflicts = int(pc.sum(pc.equal(statuses, "conflict")).as_py())
        if written < len(lines) and self._shape.continues:
            written = self._explained(written, conflicts, len(lines))
        self.lines += len(lines)
        self.written += written
        self.duplicates += len(lines) - written - conflicts
        self.conflicts += conflicts

    def _explained(self, written: int, conflicts: int, rows: int) -> int:
        """Explain duplicates among new seqnos: the batch was sent again, or another producer uses the id."""
        if self._sender.has_sent_again and not conflicts:
            return rows
        line = f"line {self.lines + 1}: {rows - written:,} of {rows:,} lines were treated as duplicates and not written"
        cure = f"another producer uses the id {self._shape.producer_id} at the same time. Give each its own id"
        raise Failure(Exit.REFUSED, f"{line}: {cure}")

    def told(self) -> str:
        """A summary of what was written so far."""
        duplicates = f", {self.duplicates:,} already there" if self.duplicates else ""
        conflicts = f", {self.conflicts:,} in conflict" if self.conflicts else ""
        return f"{self.written:,} of {self.lines:,} lines written{duplicates}{conflicts}"


def publish_stdin(
    topic: str, shape: Shape, batch: int, retry_seconds: float, url: str, token: str | None, ca: Path | None
) -> Publishing:
    """Publish every line of stdin."""
    _check_codec(shape.codec)
    with _sender(topic, shape, retry_seconds, url, token, ca) as sender, _progress(topic) as progress:
        publishing = Publishing(sender, shape)
        try:
            for lines in batches_of(sys.stdin.fileno(), batch):
                publishing.send(lines)
                progress.advance(len(lines), lines.nbytes)
        except Failure as failure:
            raise Failure(failure.exit, f"{failure} ({publishing.told()})") from None
    return publishing


def _check_codec(codec: str) -> None:
    """Check, before anything is sent, that the codec is known and its library installed."""
    try:
        codecs.compress(b"", codec)
    except HeadraceError as error:
        raise Failure(Exit.USAGE, f"--{error}") from None


@contextmanager
def _sender(
    topic: str, shape: Shape, retry_seconds: float, url: str, token: str | None, ca: Path | None
) -> Iterator[LineSender]:
    if is_flight(url):
        producer_id = shape.producer_id if shape.continues else None
        with (
            flight.connected(url, token, ca, retry_seconds) as client,
            closing(FlightSender(client, topic, producer_id, retry_seconds)) as sender,
        ):
            yield sender
    else:
        with connected(url, token, ca) as http:
            yield HttpSender(http, topic, shape.producer_id is not None, retry_seconds)


class SendProgress(Protocol):
    """Notified of progress."""

    def advance(self, lines: int, size: int) -> None: ...


class _NoProgress:
    def advance(self, lines: int, size: int) -> None:
        """Does nothing."""


class _Bar:
    """A progress bar with a rate; only the rate if the input size is unknown."""

    def __init__(self, topic: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        size = os.fstat(sys.stdin.fileno()).st_size or None
        columns = [BarColumn()] if size else [SpinnerColumn()]
        self.shown = Progress(
            TextColumn("{task.description}"),
            *columns,
            TextColumn("{task.fields[lines]:,} lines, {task.fields[rate]:,.0f}/s"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task = self.shown.add_task(topic, total=size, lines=0, rate=0.0)
        self._lines = 0
        self._started = time.monotonic()

    def advance(self, lines: int, size: int) -> None:
        self._lines += lines
        rate = self._lines / max(time.monotonic() - self._started, 1e-9)
        self.shown.update(self._task, advance=size, lines=self._lines, rate=rate)


@contextmanager
def _progress(topic: str) -> Iterator[SendProgress]:
    """A bar if stderr is a terminal and stdin is not; otherwise nothing."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        if sys.stdin.isatty():
            print_note("type one message per line; end with Ctrl-D")
        yield _NoProgress()
        return
    bar = _Bar(topic)
    with bar.shown:
        yield bar

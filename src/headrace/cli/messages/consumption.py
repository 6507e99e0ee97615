"""Prints messages: the work of `headrace consume`."""

from __future__ import annotations

import signal
import sys
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.cli.exits import Enough, Exit, Failure
from headrace.cli.messages.filters import MessageFilter
from headrace.cli.messages.formats import LineFormat, json_lines
from headrace.cli.messages.readers import MemberReader, MessageSource, PartitionReader
from headrace.cli.terminal.output import print_note
from headrace.cli.terminal.progress import ProgressLine, progress
from headrace.client import Client
from headrace.client.read.decode import Broken, Decoder, OnUndecodable, Packed, Passed, Piece
from headrace.core.positions import EARLIEST, Position

_PAGE: Final = 10_000


@dataclass(frozen=True, slots=True)
class PrintRequest:
    """What the user asked to print; `line` is the format of a message, or none for JSON."""

    topics: tuple[str, ...]
    group: str | None
    consumer_index: int | None
    place: Position | None
    to: Position | None
    partitions: tuple[int, ...]
    follow: bool
    count: int | None
    filter: MessageFilter
    line: LineFormat | None
    decode: bool
    on_undecodable: OnUndecodable


def print_messages(client: Client, wanted: PrintRequest) -> None:
    """Print the wanted messages."""
    is_shown = not sys.stdout.isatty()
    # A member that is asked to end leaves its group, as after Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    with closing(_reader(client, wanted)) as reader, progress("reading", reader.total, "messages", is_shown) as bar:
        printing = Printing(wanted, reader, bar)
        limit = _PAGE if wanted.filter.is_set else min(_PAGE, wanted.count or _PAGE)
        for topic, batch in reader.deliveries(limit):
            printing.print_batch(topic, batch)
            if printing.left == 0:
                return


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


class Printing:
    """Prints batches, up to the number of messages that are wanted."""

    def __init__(self, wanted: PrintRequest, reader: MessageSource, bar: ProgressLine) -> None:
        self._wanted = wanted
        self._reader = reader
        self._bar = bar
        self._decoders: dict[str, Decoder] = {}
        self.left = wanted.count

    def print_batch(self, topic: str, batch: pa.RecordBatch) -> None:
        """Print a batch. What comes after a message that cannot be decoded, or the last wanted, is not printed."""
        decoder = self._decoder(topic)
        left: list[Piece] = [batch if decoder is None else Packed(batch)]
        behind = skipped = 0
        while left and self.left != 0:
            piece = left.pop(0)
            if isinstance(piece, Broken):
                self._reader.printed(topic, batch.slice(0, behind))
                raise Failure(Exit.REFUSED, str(piece.error))
            if isinstance(piece, Packed):
                assert decoder is not None, "without a decoder nothing is compressed"
                left = [*decoder.pieces(piece.batch), *left]
            elif isinstance(piece, Passed):
                skipped += piece.count
                behind += piece.count
            else:
                behind += self._print(topic, piece)
        if skipped:
            print_note(
                f"{skipped:,} messages were skipped: they cannot be decoded; --on-undecodable raw prints them as stored"
            )
        self._reader.printed(topic, batch.slice(0, behind))
        self._bar.advance(behind, behind)

    def _print(self, topic: str, batch: pa.RecordBatch) -> int:
        """Print what is wanted of a batch; how many of its messages are dealt with."""
        rows = int(batch.num_rows)
        if self._wanted.filter.is_set:
            chosen = self._wanted.filter.rows(batch)
            if self.left is not None and len(chosen) >= self.left:
                chosen = chosen[: self.left]
                rows = int(chosen[-1]) + 1
            batch = batch.take(pa.array(chosen))
        elif self.left is not None:
            batch = batch.slice(0, self.left)
            rows = int(batch.num_rows)
        if self.left is not None:
            self.left -= batch.num_rows
        if batch.num_rows:
            self._write(topic, batch)
        return rows

    def _write(self, topic: str, batch: pa.RecordBatch) -> None:
        wanted, out = self._wanted, sys.stdout.buffer
        lines = (
            json_lines(batch, topic if len(wanted.topics) > 1 else None)
            if wanted.line is None
            else wanted.line.lines(batch, topic)
        )
        try:
            out.writelines(lines)
            out.flush()
        except BrokenPipeError:
            raise Enough from None

    def _decoder(self, topic: str) -> Decoder | None:
        if self._wanted.decode and topic not in self._decoders:
            self._decoders[topic] = Decoder(topic, self._wanted.on_undecodable)
        return self._decoders.get(topic)


def _reader(client: Client, wanted: PrintRequest) -> MessageSource:
    if wanted.group is not None:
        return MemberReader(client, wanted.topics, wanted.group, wanted.consumer_index, wanted.place, wanted.follow)
    begin: Position = EARLIEST if wanted.place is None else wanted.place
    return PartitionReader(client, wanted.topics, begin, wanted.to, wanted.partitions, wanted.follow)

"""Prints messages: the work of `headrace consume`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from headrace.cli.exits import Enough, Exit, Failure
from headrace.cli.messages.flight_readers import FlightMember, FlightReader
from headrace.cli.messages.formats import LineFormat, lines_of
from headrace.cli.messages.http_readers import HttpMember, HttpReader
from headrace.cli.options import connected, is_flight
from headrace.cli.output import print_note
from headrace.cli.remote import flight
from headrace.client.consumer.decode import Broken, Decoder, Packed, Passed, Piece, check_on_undecodable
from headrace.core.positions import EARLIEST, Position

_PAGE: Final = 10_000
_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked to print."""

    topic: str
    group: str | None
    place: Position | None
    partitions: list[int]
    follow: bool
    count: int | None
    decode: bool
    on_undecodable: str


class Reader(Protocol):
    """A source of messages that is notified of what was printed."""

    def tables(self, limit: int) -> Iterator[pa.Table]: ...

    def printed(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


def print_messages(wanted: Wanted, line: LineFormat | None, url: str, token: str | None, ca: Path | None) -> None:
    """Print the wanted messages, by a format or as JSON."""
    decoder = Decoder(wanted.topic, check_on_undecodable(wanted.on_undecodable)) if wanted.decode else None
    with _reader(wanted, url, token, ca) as reader:
        left = wanted.count
        for table in reader.tables(min(_PAGE, left or _PAGE)):
            if left is not None:
                table = table.slice(0, left)
                left -= table.num_rows
            for batch in table.to_batches():
                _print_batch(batch, decoder, line, reader)
            if left == 0:
                return


def _print_batch(batch: pa.RecordBatch, decoder: Decoder | None, line: LineFormat | None, reader: Reader) -> None:
    """Print a batch. If a value cannot be decoded, only the messages before it count as printed."""
    left: list[Piece] = [batch if decoder is None else Packed(batch)]
    behind = skipped = 0
    while left:
        piece = left.pop(0)
        if isinstance(piece, Broken):
            reader.printed(pa.Table.from_batches([batch.slice(0, behind + piece.row)]))
            raise Failure(Exit.REFUSED, str(piece.error))
        if isinstance(piece, Packed):
            assert decoder is not None, "without a decoder nothing is compressed"
            behind = batch.num_rows - piece.batch.num_rows
            left = [*decoder.pieces(piece.batch), *left]
        elif isinstance(piece, Passed):
            skipped += piece.count
        else:
            _print(piece, line)
    if skipped:
        print_note(
            f"{skipped:,} messages were skipped: they cannot be decoded; --on-undecodable raw prints them as stored"
        )
    reader.printed(pa.Table.from_batches([batch]))


def _print(batch: pa.RecordBatch, line: LineFormat | None) -> None:
    out = sys.stdout.buffer
    try:
        out.writelines(lines_of(pa.Table.from_batches([batch]), line))
        out.flush()
    except BrokenPipeError:
        raise Enough from None


@contextmanager
def _reader(wanted: Wanted, url: str, token: str | None, ca: Path | None) -> Iterator[Reader]:
    topic, group, place = wanted.topic, wanted.group, wanted.place
    begin: Position = EARLIEST if place is None else place
    reader: Reader
    if is_flight(url):
        with flight.connected(url, token, ca, _PATIENCE_SECONDS) as client:
            if group is None:
                reader = FlightReader(client, topic, begin, wanted.partitions, wanted.follow)
            else:
                reader = FlightMember(client, topic, group, place, wanted.follow)
            with closing(reader):
                yield reader
    else:
        with connected(url, token, ca) as http:
            if group is None:
                reader = HttpReader(http, topic, begin, wanted.partitions, wanted.follow)
            else:
                reader = HttpMember(http, topic, group, place, wanted.follow)
            with closing(reader):
                yield reader

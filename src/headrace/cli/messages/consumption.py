"""Printing messages: what `headrace consume` does, apart from its options."""

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
from headrace.cli.remote import flight
from headrace.client.consumer.decode import decoded
from headrace.core.errors import InvalidInput
from headrace.core.positions import EARLIEST, Position

_PAGE: Final = 10_000
_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be printed."""

    topic: str
    group: str | None
    place: Position | None
    partitions: list[int]
    follow: bool
    count: int | None
    decode: bool


class Reader(Protocol):
    """Gives messages, and is told what was printed of them."""

    def tables(self, limit: int) -> Iterator[pa.Table]: ...

    def printed(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


def print_messages(wanted: Wanted, line: LineFormat | None, url: str, token: str | None, ca: Path | None) -> None:
    """Print what is wanted, by a format or as JSON."""
    with _reader(wanted, url, token, ca) as reader:
        left = wanted.count
        for table in reader.tables(min(_PAGE, left or _PAGE)):
            if left is not None:
                table = table.slice(0, left)
                left -= table.num_rows
            _print(_plain(table) if wanted.decode else table, line)
            reader.printed(table)
            if left == 0:
                return


def _print(table: pa.Table, line: LineFormat | None) -> None:
    out = sys.stdout.buffer
    try:
        out.writelines(lines_of(table, line))
        out.flush()
    except BrokenPipeError:
        raise Enough from None


def _plain(table: pa.Table) -> pa.Table:
    try:
        return pa.Table.from_batches([decoded(batch) for batch in table.to_batches()], table.schema)
    except InvalidInput as error:
        line = f"a value cannot be decompressed: {error}; --no-decode prints values as they are stored"
        raise Failure(Exit.REFUSED, line) from None


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

"""`headrace produce`: lines from stdin as messages.

With a producer id the line's number is its seqno, so that a file that is run again, or again from its beginning after
a failure, writes each line once. Lines are sent in batches; one that is incomplete is sent as soon as no more input is
there at the moment, so that typing works too.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final, Protocol

import pyarrow as pa
import typer

from headrace.cli.client import DEFAULT_URL, Ca, Client, Json, Refused, Token, Unreachable, Url, path_of
from headrace.cli.exits import Exit, Failure
from headrace.cli.output import print_json, print_line, print_note
from headrace.core.limits import BATCH_ROWS_MAX, ID_CHARACTERS_MAX

EXAMPLES: Final = """
With --producer-id every line is written exactly once, however often the same file is sent.

Examples:

  headrace produce orders < orders.txt

  headrace produce orders --key-separator : --producer-id till-7 < orders.txt

  tail -f app.log | headrace produce logs
"""

_READ_BYTES: Final = 1 << 20
# A batch is sent at this size too, whatever lines it has: bodies have a limit.
_BATCH_BYTES: Final = 8 << 20
_MORE_INPUT_SECONDS: Final = 0.05
_RETRY_PAUSE_SECONDS: Final = 0.5


def produce(
    topic: Annotated[str, typer.Argument(help="The topic to publish to.")],
    key_separator: Annotated[
        str | None,
        typer.Option(help="What stands between key and value; a line without it has no key.", metavar="TEXT"),
    ] = None,
    producer_id: Annotated[
        str | None, typer.Option(help="Makes it safe to send the same lines again.", metavar="ID")
    ] = None,
    partition: Annotated[int | None, typer.Option(help="Write to this partition.", metavar="N")] = None,
    batch: Annotated[int, typer.Option(help="Lines a request.", metavar="N", min=1, max=BATCH_ROWS_MAX)] = 10_000,
    retry_seconds: Annotated[
        float, typer.Option(help="How long to try again if the server is away or busy.", metavar="SECONDS", min=0)
    ] = 30.0,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Publish every line of stdin as a message."""
    if key_separator == "":
        raise Failure(Exit.USAGE, "--key-separator is empty: give the text between key and value")
    if producer_id is not None and not 0 < len(producer_id) <= ID_CHARACTERS_MAX:
        raise Failure(Exit.USAGE, f"--producer-id must have 1 to {ID_CHARACTERS_MAX} characters")
    started = time.monotonic()
    with Client(url, token, ca) as client, _progress(topic) as progress:
        sender = _Sender(client, topic, _separator(key_separator), producer_id, partition, retry_seconds)
        try:
            for lines in _batches(sys.stdin.fileno(), batch):
                sender.send(lines)
                progress.advance(len(lines), sum(map(len, lines)) + len(lines))
        except Failure as failure:
            raise Failure(failure.exit, f"{failure} ({sender.told()})") from None
    seconds = time.monotonic() - started
    if as_json:
        print_json({"topic": topic, "written": sender.written, "duplicates": sender.duplicates, "seconds": seconds})
    else:
        print_line(f"{topic}: {sender.told()}")


def _separator(text: str | None) -> bytes | None:
    return (
        None
        if text is None
        else text.encode().decode("unicode_escape").encode("latin-1")
        if "\\" in text
        else text.encode()
    )


class _Sender:
    """Sends batches one after another and counts what became of them."""

    def __init__(
        self,
        client: Client,
        topic: str,
        separator: bytes | None,
        producer_id: str | None,
        partition: int | None,
        retry_seconds: float,
    ) -> None:
        self._client = client
        self._path = path_of("topics", topic, "messages")
        self._separator = separator
        self._producer_id = producer_id
        self._partition = partition
        self._retry_seconds = retry_seconds
        self.lines = 0
        self.written = 0
        self.duplicates = 0

    def send(self, lines: list[bytes]) -> None:
        """Publish some lines in one commit."""
        receipts = self._post(self._batch(lines))
        written = receipts["status"].to_pylist().count("written")
        self.lines += len(lines)
        self.written += written
        self.duplicates += len(lines) - written

    def told(self) -> str:
        """What was done so far."""
        duplicates = f", {self.duplicates:,} were there before" if self.duplicates else ""
        return f"{self.written:,} of {self.lines:,} lines written{duplicates}"

    def _batch(self, lines: list[bytes]) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {}
        if self._separator is None:
            columns["value"] = pa.array(lines, pa.binary())
        else:
            parts = [line.partition(self._separator) for line in lines]
            columns["value"] = pa.array([value if found else whole for whole, found, value in parts], pa.binary())
            columns["key"] = pa.array([key if found else None for key, found, _ in parts], pa.binary())
        if self._producer_id is not None:
            columns["producer_id"] = pa.array([self._producer_id] * len(lines))
            columns["seqno"] = pa.array(range(self.lines + 1, self.lines + 1 + len(lines)), pa.int64())
        if self._partition is not None:
            columns["partition"] = pa.array([self._partition] * len(lines), pa.int32())
        return pa.record_batch(columns)

    def _post(self, batch: pa.RecordBatch) -> pa.Table:
        """Publish, again and again for a while if that is safe and may help."""
        deadline = time.monotonic() + self._retry_seconds
        while True:
            try:
                return self._client.post_arrow(self._path, batch)
            except Refused as refused:
                if not self._may_retry(refused) or time.monotonic() >= deadline:
                    raise self._placed(refused) from None
            except Unreachable:
                # Without a producer id a message that was written before the answer got lost would be written twice.
                if self._producer_id is None or time.monotonic() >= deadline:
                    raise
            time.sleep(_RETRY_PAUSE_SECONDS)

    def _may_retry(self, refused: Refused) -> bool:
        is_unknown = refused.problem.code == "outcome_unknown"
        return refused.problem.retry and (self._producer_id is not None or not is_unknown)

    def _placed(self, refused: Refused) -> Failure:
        """A refusal that names a row names the line instead."""
        row = refused.problem.fields.get("row")
        detail = str(refused)
        if isinstance(row, int):
            detail = f"line {self.lines + row + 1}: {detail.removeprefix(f'row {row}: ')}"
        return Failure(refused.exit, detail)


def _batches(source: int, size: int) -> Iterator[list[bytes]]:
    """The lines of a file, as many at a time as are there, at most `size`."""
    lines: list[bytes] = []
    rest, held = b"", 0
    while chunk := os.read(source, _READ_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        lines += whole
        held += len(chunk)
        while len(lines) >= size:
            yield lines[:size]
            lines = lines[size:]
            held = 0
        if lines and (held >= _BATCH_BYTES or not _has_more(source)):
            yield lines
            lines, held = [], 0
    if rest:
        lines.append(rest)
    if lines:
        yield lines


def _has_more(source: int) -> bool:
    return bool(select.select([source], [], [], _MORE_INPUT_SECONDS)[0])


class Progress(Protocol):
    """Told how far it is."""

    def advance(self, lines: int, size: int) -> None: ...


class _NoProgress:
    def advance(self, lines: int, size: int) -> None:
        """Nobody looks."""


class _Bar:
    """A bar with a rate, if the size of the input is known, else only the rate."""

    def __init__(self, topic: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        size = os.fstat(sys.stdin.fileno()).st_size or None
        columns = [BarColumn()] if size else [SpinnerColumn()]
        self._bar = Progress(
            TextColumn("{task.description}"),
            *columns,
            TextColumn("{task.fields[lines]:,} lines, {task.fields[rate]:,.0f}/s"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(topic, total=size, lines=0, rate=0.0)
        self._lines = 0
        self._started = time.monotonic()

    def advance(self, lines: int, size: int) -> None:
        self._lines += lines
        rate = self._lines / max(time.monotonic() - self._started, 1e-9)
        self._bar.update(self._task, advance=size, lines=self._lines, rate=rate)

    @property
    def live(self) -> object:
        return self._bar


@contextmanager
def _progress(topic: str) -> Iterator[Progress]:
    """A bar on a terminal that is not being typed on, nothing elsewhere."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        if sys.stdin.isatty():
            print_note("every line is a message; Ctrl-D ends")
        yield _NoProgress()
        return
    bar = _Bar(topic)
    with bar._bar:
        yield bar

"""`headrace consume`: messages to stdout.

Without a group it reads by itself and leaves no trace. With one it joins as a member, and commits what it has printed:
a message is printed at least once, whatever happens.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, Final, Protocol

import pyarrow as pa
import typer

from headrace.cli.client import DEFAULT_URL, Ca, Client, Json, Refused, Token, Url, path_of
from headrace.cli.events import follow
from headrace.cli.exits import Enough, Exit, Failure
from headrace.cli.formats import DEFAULT, FIELDS, lines_of, parse_format
from headrace.cli.output import print_note
from headrace.cli.positions import Place, Time, parse_place

EXAMPLES: Final = f"""
Fields of --format: {", ".join(FIELDS)}.

Examples:

  headrace consume orders

  headrace consume orders --from -10 --format '{{partition}} {{offset}} {{key}} {{value}}'

  headrace consume orders --from 2026-07-01T12:00:00Z --json --max 100

  headrace consume orders --group billing --follow
"""

_FOLLOW_SECONDS: Final = 20.0
# How long a group's reader that does not follow waits for more: another member may just have left.
_LINGER_SECONDS: Final = 0.5
_PAGE: Final = 10_000


def consume(
    topic: Annotated[str, typer.Argument(help="The topic to read.")],
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", help="earliest, latest, N, -N, a time, or 15m ago as 15m. \\[earliest]", metavar="PLACE"
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Read as a member of this group, and commit.", metavar="NAME")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(help="Only this partition; may be repeated.", metavar="N")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes; Ctrl-C ends.")] = False,
    count: Annotated[int | None, typer.Option("--max", help="Stop after so many.", metavar="N", min=1)] = None,
    format: Annotated[str, typer.Option(help="How to print a message.", metavar="TEXT")] = DEFAULT,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Print the messages of a topic, those that are there or, with --follow, those that come too."""
    place = parse_place(begin) if begin is not None else None
    line = None if as_json else parse_format(format, topic)
    with Client(url, token, ca) as client:
        reader: Reader
        if group is None:
            reader = _Plain(client, topic, "earliest" if place is None else place, partition or [], follow)
        else:
            if partition:
                raise Failure(Exit.USAGE, "--partition does not go with --group: a group gives its members theirs")
            reader = _Member(client, topic, group, place, follow)
        try:
            _print_all(reader, line, count)
        finally:
            reader.close()


class Reader(Protocol):
    """Gives messages, and is told what was printed of them."""

    def tables(self, limit: int) -> Iterator[pa.Table]: ...

    def printed(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


def _print_all(reader: Reader, line: Any, count: int | None) -> None:
    left = count
    out = sys.stdout.buffer
    for table in reader.tables(min(_PAGE, count or _PAGE)):
        if left is not None:
            table = table.slice(0, left)
            left -= table.num_rows
        try:
            out.writelines(lines_of(table, line))
            out.flush()
        except BrokenPipeError:
            raise Enough from None
        reader.printed(table)
        if left == 0:
            return


class _Plain:
    """Reads partitions by themselves."""

    def __init__(self, client: Client, topic: str, place: Place, partitions: list[int], is_following: bool) -> None:
        self._client = client
        self._topic = topic
        self._follow = is_following
        self._is_all = not partitions
        known = {each["partition"]: each for each in client.get(path_of("topics", topic))["partitions"]}
        for partition in partitions:
            if partition not in known:
                raise Failure(Exit.REFUSED, f"partition {partition} of {topic} does not exist: it has {len(known)}")
        chosen = [known[partition] for partition in partitions or known]
        self._ends = {each["partition"]: each["end_offset"] for each in chosen}
        self._next = {each["partition"]: self._begin(each, place) for each in chosen}

    def tables(self, limit: int) -> Iterator[pa.Table]:
        """What is there, partition by partition; then, if it follows, what comes."""
        for partition, end in self._ends.items():
            while self._next[partition] < end:
                yield from self._fetch(partition, min(limit, end - self._next[partition]), 0.0)
        if self._follow:
            yield from follow(self._client, path_of("topics", self._topic, "events"), self._next, self._is_all)

    def printed(self, table: pa.Table) -> None:
        """Nobody needs to know."""

    def close(self) -> None:
        """Nothing is held."""

    def _fetch(self, partition: int, limit: int, wait_seconds: float) -> Iterator[pa.Table]:
        path = path_of("topics", self._topic, "partitions", partition, "messages")
        table = self._client.get_arrow(path, wait_seconds, offset=self._next[partition], max_messages=limit)
        self._next[partition] += table.num_rows
        if table.num_rows:
            yield table

    def _begin(self, partition: dict[str, Any], place: Place) -> int:
        start, end = int(partition["start_offset"]), int(partition["end_offset"])
        if isinstance(place, Time):
            path = path_of("topics", self._topic, "partitions", partition["partition"], "messages")
            first = self._client.get_arrow(path, time_us=place.us, max_messages=1)
            return int(first["offset"][0].as_py()) if first.num_rows else end
        if place == "earliest":
            return start
        if place == "latest":
            return end
        if place < 0:
            return max(start, end + place)
        if place < start:
            print_note(f"partition {partition['partition']} begins at {start} now, not at {place}")
        return min(max(start, place), end)


class _Member:
    """Reads as a member of a group, under a name of its own."""

    def __init__(self, client: Client, topic: str, group: str, place: Place | None, is_following: bool) -> None:
        self._client = client
        self._follow = is_following
        self._group = path_of("topics", topic, "groups", group)
        self._me = f"{socket.gethostname()}-{os.getpid()}"
        self._path = f"{self._group}/members/{path_of(self._me).rsplit('/', 1)[1]}"
        self._generation = 0
        if place is not None:
            self._begin_at(place, group)
        self._join()

    def tables(self, limit: int) -> Iterator[pa.Table]:
        """What is left for the group, and what comes if it follows."""
        wait_seconds = _FOLLOW_SECONDS if self._follow else _LINGER_SECONDS
        while True:
            try:
                table = self._client.get_arrow(f"{self._path}/messages", wait_seconds, max_messages=limit)
            except Refused as refused:
                if refused.problem.code != "member_not_found":
                    raise
                self._join()
                continue
            if table.num_rows:
                yield table
            elif not self._follow:
                return

    def printed(self, table: pa.Table) -> None:
        """Commit what was printed; where the group has moved on meanwhile, someone else prints it again."""
        ends: dict[int, int] = {}
        for partition, offset in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
            ends[partition] = offset + 1
        offsets = [{"partition": partition, "offset": offset} for partition, offset in ends.items()]
        try:
            self._client.post(f"{self._group}/offsets", {"offsets": offsets, "member": self._me})
        except Refused as refused:
            if refused.problem.code not in ("member_not_found", "partition_not_owned", "stale_generation"):
                raise
            print_note("the group has changed meanwhile: what was printed last may be printed by another member too")

    def close(self) -> None:
        """Leave, so that others get the partitions at once."""
        # If the server is away or has forgotten us, there is nothing to leave.
        with suppress(Failure):
            self._client.delete(self._path)

    def _begin_at(self, place: Place, group: str) -> None:
        """Make the group begin there, if it is new."""
        if isinstance(place, int):
            raise Failure(
                Exit.USAGE, "a group begins at earliest, latest or a time; then move it by `headrace group seek`"
            )
        try:
            self._client.get(self._group)
            print_note(f"group {group} is there already and goes on where it was: --from is for new groups")
        except Refused as refused:
            if refused.problem.code != "group_not_found":
                raise
            self._client.put(self._group, {"read_from": place.us if isinstance(place, Time) else place})

    def _join(self) -> None:
        self._client.put(self._path, {})

"""Follows a topic by server-sent events, as tables of messages; resumes after a lost connection."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa

from headrace.cli.exits import Exit, Failure
from headrace.cli.output import print_note
from headrace.cli.remote.http import HttpClient, Refused, ServerUnreachable
from headrace.wire.json import Messages, table_of

RECONNECT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    kind: str
    data: str
    id: str | None


def follow(client: HttpClient, path: str, positions: dict[int, int], all_partitions: bool) -> Iterator[pa.Table]:
    """Messages from these positions on, until the topic is deleted."""
    query = {
        "from": ",".join(f"{partition}:{offset}" for partition, offset in positions.items()),
        "partitions": None if all_partitions else ",".join(map(str, positions)),
        "encoding": "base64",
    }
    last_id: str | None = None
    away_since: float | None = None
    while True:
        try:
            with client.stream(path, query, last_id) as lines:
                for event in parse_events(lines):
                    away_since = None
                    last_id = event.id or last_id
                    yield from _messages(event)
        except (ServerUnreachable, Refused) as failure:
            away_since = away_since or time.monotonic()
            if not _passes(failure) or time.monotonic() - away_since > RECONNECT_SECONDS:
                raise
        time.sleep(_PAUSE_SECONDS)


def _passes(failure: Failure) -> bool:
    return isinstance(failure, ServerUnreachable) or failure.exit is Exit.FAILING


def _messages(event: Event) -> Iterator[pa.Table]:
    if event.kind == "messages":
        yield table_of(msgspec.json.decode(event.data, type=Messages).messages)
    elif event.kind == "gap":
        print_note(f"retention deleted messages before they were read: {event.data}")
    elif event.kind == "end":
        problem = msgspec.json.decode(event.data)
        if not problem.get("retry"):
            raise Failure(Exit.REFUSED, str(problem.get("detail", event.data)))


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """Parse the lines of a stream into events."""
    kind, event_id = "message", None
    data: list[str] = []
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield Event(kind, "\n".join(data), event_id)
            kind, data, event_id = "message", [], None
        elif field == "event":
            kind = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            event_id = value

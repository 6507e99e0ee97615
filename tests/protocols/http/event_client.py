"""A reader of server-sent events, as the standard describes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class Event:
    kind: str
    data: Any
    id: str


@dataclass
class EventReader:
    """One connection: its events, the last id seen, and how many comments came."""

    response: httpx.Response
    last_id: str = ""
    comments: int = 0
    lines: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = self.response.iter_lines()

    def events(self) -> Iterator[Event]:
        """The events until the server ends."""
        kind, data = "message", ""
        for line in self.lines:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line.startswith(":"):
                self.comments += 1
            elif name == "id":
                self.last_id = value
            elif name == "event":
                kind = value
            elif name == "data":
                data += value
            elif not line and data:
                yield Event(kind, json.loads(data), self.last_id)
                kind, data = "message", ""

    def open(self) -> EventReader:
        """Read until the place is told at which it begins."""
        for line in self.lines:
            if line.startswith("id:"):
                self.last_id = line.removeprefix("id:").strip()
            if not line:
                break
        return self

    def messages(self, count: int) -> list[dict[str, Any]]:
        """The next messages, so many."""
        found: list[dict[str, Any]] = []
        for event in self.events():
            assert event.kind == "messages", event
            found += event.data["messages"]
            if len(found) >= count:
                break
        return found


@contextmanager
def subscribed(client: httpx.Client, path: str, last_id: str | None = None, **query: Any) -> Iterator[EventReader]:
    """A subscription that has begun."""
    headers = {"accept": "text/event-stream"} | ({} if last_id is None else {"last-event-id": last_id})
    with client.stream("GET", path, params=query, headers=headers) as response:
        if response.status_code != 200:
            response.read()
            raise AssertionError(response.text)
        assert response.headers["content-type"] == "text/event-stream"
        # Kept here: a reader that nobody holds hangs up.
        reader = EventReader(response).open()
        yield reader

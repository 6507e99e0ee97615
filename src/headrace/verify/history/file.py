"""A history as a file: JSON lines, only ever appended to.

The recorder is thread-safe. Each event is written to the operating system before the call returns, so that a
history ends cleanly wherever its process was killed. A last line without an end is ignored when a history is read.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from headrace.core.errors import InvalidInput
from headrace.verify.history.events import FORMAT, Began, Event


class Recorder:
    """Writes one history."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """A number for a call, by which its end is found."""
        return next(self._numbers)

    def record(self, event: Event) -> None:
        """Append an event."""
        line = self._encoder.encode(event) + b"\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(line)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_history(path: Path) -> Iterator[Event]:
    """The events of a file in the order written."""
    decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                event = decoder.decode(line)
            except msgspec.MsgspecError as error:
                rule = f"it is not an event of a history: {error}"
                raise InvalidInput(f"line {number} of {path}", repr(line[:40]), rule) from None
            if number == 1 and (not isinstance(event, Began) or event.format != FORMAT):
                raise InvalidInput(str(path), repr(line[:40]), f"it must begin with an event of format {FORMAT}")
            yield event

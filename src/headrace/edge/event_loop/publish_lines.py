"""What waits on an event loop to be written, by topic, and the threads that write it.

    add (event loop)  ->  a thread takes all that waits in a line and publishes it, again while more has arrived
                          |
                          +->  tell (event loop): each entry its outcome

Entries that are added during a commit share the next one. A line is served by one thread at a time, which begins the
next commit without asking the event loop. If more lines are busy than there are threads, a thread takes one commit of
each in turn. An entry that is no longer wanted when its turn comes is withdrawn, not written.

`add` and `tell` run on the event loop, `publish` in a thread; the lock is held for an append only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.broker.publish.admissions import Admission
from headrace.core.publish.receipts import Receipts

Outcome = Receipts | Exception


@dataclass(slots=True, eq=False)
class Entry:
    """What one publisher was admitted with, whom to tell the outcome, and whether that one still waits."""

    admission: Admission
    tell: Callable[[Outcome], None]
    is_wanted: Callable[[], bool]
    # The message, if it has only a value.
    value: bytes = b""


Line = TypeVar("Line", bound=Hashable)


class PublishLines(Generic[Line]):
    """All lines of one event loop."""

    def __init__(
        self,
        publish: Callable[[Line, Sequence[Entry]], Sequence[Outcome]],
        withdraw: Callable[[Admission], None],
        threads: int,
    ) -> None:
        self._publish = publish
        self._withdraw = withdraw
        self._threads = threads
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="headrace-publish")
        self._lock = threading.Lock()
        # A line has an entry here, perhaps an empty one, while a thread serves it or is asked to.
        self._waiting: dict[Line, list[Entry]] = {}

    def add(self, line: Line, entry: Entry) -> None:
        """Put an entry into a line."""
        with self._lock:
            waiting = self._waiting.get(line)
            if waiting is not None:
                waiting.append(entry)
                return
            self._waiting[line] = [entry]
        loop = asyncio.get_running_loop()
        # Not at once: what else is added in this turn of the loop shares the commit.
        loop.call_soon(self._begin, loop, line)

    def _begin(self, loop: asyncio.AbstractEventLoop, line: Line) -> None:
        try:
            self.pool.submit(self._serve, loop, line)
        except RuntimeError as error:
            # The threads have ended.
            for entry in self._take(line, leave=True):
                self._withdraw(entry.admission)
                entry.tell(error)

    def _serve(self, loop: asyncio.AbstractEventLoop, line: Line) -> None:
        while entries := self._take(line):
            wanted = []
            for entry in entries:
                if entry.is_wanted():
                    wanted.append(entry)
                else:
                    self._withdraw(entry.admission)
            if wanted:
                outcomes = self._outcomes(line, wanted)
                # The loop may be closed when the last topics end.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(_tell, wanted, outcomes)
            if len(self._waiting) > self._threads:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._begin, loop, line)
                return

    def _take(self, line: Line, leave: bool = False) -> list[Entry]:
        """All that waits in a line; a line with nothing in it, or that is left, is no longer served."""
        with self._lock:
            entries = self._waiting[line]
            if entries and not leave:
                self._waiting[line] = []
            else:
                del self._waiting[line]
            return entries

    def _outcomes(self, line: Line, entries: Sequence[Entry]) -> Sequence[Outcome]:
        try:
            return self._publish(line, entries)
        except Exception as error:
            for entry in entries:
                self._withdraw(entry.admission)
            return [error] * len(entries)


def _tell(entries: Sequence[Entry], outcomes: Sequence[Outcome]) -> None:
    for entry, outcome in zip(entries, outcomes, strict=True):
        entry.tell(outcome)

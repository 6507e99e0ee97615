"""Progress of long commands: a bar on stderr, if that is a terminal; otherwise nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class ProgressLine(Protocol):
    """Notified of progress: how many more things, and how far that is in the unit of the total."""

    def advance(self, things: int, amount: int) -> None: ...


class _NoProgress:
    def advance(self, things: int, amount: int) -> None:
        """Does nothing."""


class _Bar:
    """A bar with a rate; only the rate if the total is unknown."""

    def __init__(self, description: str, total: int | None, noun: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = [BarColumn()] if total else [SpinnerColumn()]
        self.shown = Progress(
            TextColumn("{task.description}"),
            *columns,
            TextColumn(f"{{task.fields[things]:,}} {noun}, {{task.fields[rate]:,.0f}}/s"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self.shown.add_task(description, total=total or None, things=0, rate=0.0)
        self._things = 0
        self._started = time.monotonic()

    def advance(self, things: int, amount: int) -> None:
        self._things += things
        rate = self._things / max(time.monotonic() - self._started, 1e-9)
        self.shown.update(self._task, advance=amount, things=self._things, rate=rate)


@contextmanager
def progress(description: str, total: int | None, noun: str, is_shown: bool) -> Iterator[ProgressLine]:
    """A bar for the time of the block, if someone can see it and it is in nobody's way."""
    if not is_shown or not sys.stderr.isatty():
        yield _NoProgress()
        return
    bar = _Bar(description, total, noun)
    with bar.shown:
        yield bar

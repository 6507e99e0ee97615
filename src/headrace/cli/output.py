"""What commands print: tables for people, JSON for programs, one line for an error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

_WIDTH_ELSEWHERE: Final = 10_000


def print_json(value: Any) -> None:
    """A value as indented JSON on stdout."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    sys.stdout.write(text + "\n")


def print_line(text: str) -> None:
    """A sentence for people on stdout."""
    sys.stdout.write(text + "\n")


def print_note(text: str) -> None:
    """A sentence that is no part of the answer, on stderr."""
    sys.stderr.write(text + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """A table; numbers to the right. Elsewhere than on a terminal it is as wide as it needs to be."""
    # Loaded here: what prints no table is quicker without.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    given = [list(row) for row in rows]
    has_header = any(columns)
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, show_header=has_header)
    for place, column in enumerate(columns):
        is_number = bool(given) and all(isinstance(row[place], int | float | None) for row in given)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in given:
        # As text: names may have brackets, which would else be taken for markup.
        table.add_row(*(Text(shown(cell)) for cell in row))
    width = None if sys.stdout.isatty() else _WIDTH_ELSEWHERE
    Console(file=sys.stdout, width=width, highlight=False).print(table)


def shown(value: Any) -> str:
    """A cell as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return str(value).translate(_CONTROL)


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)}


def bytes_shown(count: int) -> str:
    """A size as people read it."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def time_shown(time_us: int) -> str:
    """A time as people read it, UTC."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

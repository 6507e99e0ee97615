"""What commands print: tables for people, JSON for programs, one line for an error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

_WIDTH_ELSEWHERE: Final = 10_000


def print_json(value: Any) -> None:
    """Print a value as indented JSON on stdout."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    sys.stdout.write(text + "\n")


def print_line(text: str) -> None:
    """Print a line for people on stdout."""
    sys.stdout.write(text + "\n")


def print_note(text: str) -> None:
    """Print a line on stderr that is not part of the result."""
    sys.stderr.write(text + "\n")


def print_json_line(value: Any) -> None:
    """Print a value as JSON on one line of stdout, at once."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Print a table, numbers right-aligned. If stdout is not a terminal, the table is as wide as its content."""
    print_shown(make_table(columns, rows, title))


def print_shown(view: Any) -> None:
    """Print something that rich can show."""
    # Imported here: commands that print no table start faster without it.
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_ELSEWHERE
    Console(file=sys.stdout, width=width, highlight=False).print(view)


def make_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> Any:
    """A table for rich, numbers right-aligned."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    given = [list(row) for row in rows]
    has_header = any(columns)
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, show_header=has_header)
    for place, column in enumerate(columns):
        is_number = bool(given) and all(isinstance(row[place], int | float | None) for row in given)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in given:
        # As Text: brackets in names would otherwise be parsed as markup.
        table.add_row(*(Text(shown(cell)) for cell in row))
    return table


def shown(value: Any) -> str:
    """Format a table cell for people."""
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

"""Prints docs/reference/cli.md: every command of `headrace` with its options, as `--help` has them.

`make docs` runs it, and tests/docs/test_cli_reference.py compares the page with what it prints.
"""

from __future__ import annotations

import html
import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import typer
from typer.main import get_command

from headrace.cli.main import app
from headrace.cli.terminal.help import format_options

HEAD = """# Command line

Every command, as `headrace COMMAND --help` describes it. To change this page, change the help text and run `make docs`.
"""
# Every command has it, or only the whole.
LEFT_OUT = ("--help", "--install-completion", "--show-completion")


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_command(get_command(app), "headrace", None)).rstrip("\n") + "\n"


def _command(command: Any, path: str, parent: typer.Context | None) -> Iterator[str]:
    context = typer.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    children = getattr(command, "commands", {})
    yield f"\n## {path}\n\n{inspect.cleandoc(command.help or '')}\n"
    if not children:
        yield f"\n```text\n{path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield from _parameters(command, context)
    if command.epilog:
        yield f"\n```text\n{inspect.cleandoc(command.epilog)}\n```\n"
    for name, child in children.items():
        yield from _command(child, f"{path} {name}", context)


class Rows:
    """Takes the rows of a help page where a formatter would write them."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def section(self, title: str) -> AbstractContextManager[None]:
        return nullcontext()

    def write_dl(self, rows: list[tuple[str, str]]) -> None:
        self.rows += rows


def _parameters(command: Any, context: typer.Context) -> Iterator[str]:
    written = Rows()
    format_options(command, context, written)
    rows = [row for row in written.rows if not any(name in row[0] for name in LEFT_OUT)]
    if rows:
        yield "\n| | |\n|---|---|\n"
    for name, text in rows:
        yield f"| `{_cell(name)}` | {_cell(html.escape(text or '', quote=False)).replace('*', '&#42;')} |\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("\\[", "[").replace("|", "\\|").split())


if __name__ == "__main__":
    print(page(), end="")

"""`headrace doctor`: check a store that no server has open, and repair what can be repaired without data loss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.shared import Json
from headrace.cli.terminal.output import bytes_shown, print_json, print_line, print_table
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.core.reports.store_check import StoreReport

EXAMPLES: Final = """
Exit code 0: no damage, or all of it was repaired. 1: damage was found. 2: the store cannot be checked.

Examples:

  headrace doctor /var/lib/headrace

  headrace doctor /var/lib/headrace --repair --json
"""

_REPAIRS: Final = {"none": "-", "possible": "with --repair", "done": "done"}


def doctor(
    directory: Annotated[Path, typer.Argument(help="Directory of the store.", metavar="DIR")],
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild indexes, remove stray files, cut torn tails; no message is lost.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check every frame, index, snapshot and catalog row of a disk store. No server may be running on it."""
    from headrace.storage.disk.doctor.doctor import examine

    if str(directory).startswith(("postgres:", "postgresql:")):
        # The URL is not quoted: it may contain a password.
        raise Failure(Exit.USAGE, "a store in PostgreSQL has no files to check: use its own tools, such as pg_amcheck")
    try:
        report = examine(directory.absolute(), repair)
    except HeadraceError as error:
        raise Failure(Exit.USAGE, str(error)) from None
    if as_json:
        print_json({"directory": str(directory), "damaged": report.is_damaged, "report": report})
    else:
        _print(directory, report)
    if report.is_damaged:
        raise typer.Exit(Exit.REFUSED)


def _print(directory: Path, report: StoreReport) -> None:
    if report.findings:
        print_table(
            ("kind", "repair", "file", "byte", "what"),
            [
                (found.kind, _REPAIRS[found.repair], _short(directory, found.file), found.position, found.what)
                for found in report.findings
            ],
        )
    print_line(
        f"{directory}: {report.topics} topics, {report.segments} segments, {report.frames:,} frames, "
        f"{report.messages:,} messages, {bytes_shown(report.bytes)}"
    )
    damage = sum(found.kind == "damage" for found in report.findings)
    repaired = sum(found.kind == "damage" and found.repair == "done" for found in report.findings)
    if not damage:
        print_line("no damage")
    else:
        print_line(f"{damage} places are damaged, {repaired} of them repaired; everything else can be read")


def _short(directory: Path, file: str) -> str:
    path, root = Path(file), directory.absolute()
    return str(path.relative_to(root)) if path.is_relative_to(root) else file

"""`headrace backup`: a consistent copy of a disk store, while a server runs on it or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options import Json
from headrace.cli.output import bytes_shown, print_json, print_line
from headrace.core.errors import HeadraceError

EXAMPLES: Final = """
Everything that was acknowledged before it began is in the copy. To restore, put the copy where the store was and start
the server. It reads the files of the store, so run it on the server's machine, as the server's user.

Exit code 0: the copy is complete and without damage. 1: it is complete, and has damage in it that the store has too.
2: it could not be made.

Examples:

  headrace backup /backup/headrace-monday

  headrace backup /backup/headrace-monday --store file:/var/lib/headrace
"""


def backup(
    directory: Annotated[Path, typer.Argument(help="Where the copy goes; it must not exist.", metavar="DIR")],
    store: Annotated[
        str, typer.Option("--store", envvar="HEADRACE_STORE", help="The store.", metavar="URL")
    ] = "file:./headrace-data",
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Check the copy as headrace doctor does, once it is complete.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Copy a store to a directory; a server may run on it meanwhile."""
    from headrace.storage.disk.backup import back_up
    from headrace.storage.disk.doctor.doctor import examine
    from headrace.storage.open import disk_directory

    if store.startswith(("postgres:", "postgresql:")):
        # Not quoted: there may be a password in it.
        raise Failure(Exit.USAGE, "a store in PostgreSQL is backed up by its own tools: use pg_dump or pg_basebackup")
    try:
        copied = back_up(disk_directory(store), directory.absolute())
        report = examine(directory.absolute()) if check else None
    except HeadraceError as error:
        raise Failure(Exit.USAGE, str(error)) from None
    is_damaged = report is not None and report.is_damaged
    if as_json:
        print_json({"directory": str(directory), "copied": copied, "damaged": is_damaged, "report": report})
    else:
        print_line(
            f"{directory}: {copied.topics} topics, {copied.segments} segments, {bytes_shown(copied.bytes)}"
            + ("" if report is None else f", {report.messages:,} messages")
        )
        if is_damaged:
            print_line("the copy has damage in it, as the store has: see headrace doctor")
    if is_damaged:
        raise typer.Exit(Exit.REFUSED)

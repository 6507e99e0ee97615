"""`headrace backup`: make a consistent copy of a disk store, even while a server runs on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.shared import Json
from headrace.cli.terminal.output import print_json, print_line
from headrace.core.errors import HeadraceError
from headrace.core.text import bytes_shown, counted

EXAMPLES: Final = """
The copy contains every message that was acknowledged before the backup started. To restore, move the copy to the place
of the store and start the server. The command reads the files of the store: run it on the server's machine, as the
server's user. A store in PostgreSQL is backed up with its own tools.

Files of the archive are not in the copy, which needs those that its manifest lists. With --archive URL they are copied
too, below DIR/archive, and each is compared with its checksum: start the restored server with that as archive.url.

Exit code 0: the copy is complete and undamaged. 1: the copy is complete, but the store is damaged and so is the copy.
2: the backup failed.

Examples:

  headrace backup /backup/headrace-monday

  headrace backup /backup/headrace-monday --store file:/var/lib/headrace

  headrace backup /backup/headrace-monday --archive s3://history/headrace
"""


def backup(
    directory: Annotated[Path, typer.Argument(help="Directory for the copy; it must not exist.", metavar="DIR")],
    store: Annotated[
        str, typer.Option("--store", envvar="HEADRACE_STORE", help="URL of the store, file:DIRECTORY.", metavar="URL")
    ] = "file:./headrace-data",
    archive: Annotated[
        str | None,
        typer.Option(help="Copy the files of the archive too: its URL, as the server has it.", metavar="URL"),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Check the finished copy as headrace doctor does.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Copy a disk store to a directory. A server may keep running on the store."""
    from headrace.storage.archive.files import open_files
    from headrace.storage.disk.backup import back_up
    from headrace.storage.disk.doctor.doctor import examine
    from headrace.storage.open import disk_directory

    if store.startswith(("postgres:", "postgresql:")):
        # The URL is not quoted: it may contain a password.
        raise Failure(Exit.USAGE, "a store in PostgreSQL is backed up with its own tools: use pg_dump or pg_basebackup")
    # As the files of a store: readable by their owner only.
    os.umask(0o077)
    try:
        files = None if archive is None else open_files(archive)
        copied = back_up(disk_directory(store), directory.absolute(), archive=files)
        report = examine(directory.absolute()) if check else None
    except HeadraceError as error:
        raise Failure(Exit.USAGE, str(error)) from None
    is_damaged = report is not None and report.is_damaged
    if as_json:
        print_json({"directory": str(directory), "copied": copied, "damaged": is_damaged, "report": report})
    else:
        print_line(
            f"{directory}: {counted(copied.topics, 'topic')}, {counted(copied.segments, 'segment')}, "
            + bytes_shown(copied.bytes)
            + ("" if report is None else f", {counted(report.messages, 'message')}")
        )
        if archive is not None:
            print_line(f"archive: {counted(copied.archive_files, 'file')}, {bytes_shown(copied.archive_bytes)}")
        if is_damaged:
            print_line("the store is damaged and so is the copy: run headrace doctor")
    if is_damaged:
        raise typer.Exit(Exit.REFUSED)

"""`headrace doctor`: let a running server check its store; or check one that no server has open, and repair it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import quote

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json, ServerOptions
from headrace.cli.terminal.output import print_json, print_line, print_table
from headrace.core.errors import HeadraceError
from headrace.core.text import bytes_shown, counted

if TYPE_CHECKING:
    from headrace.core.reports.store_check import StoreReport

EXAMPLES: Final = """
Exit code 0: no damage, or all of it was repaired. 1: damage was found. 2: the store cannot be checked.

Examples:

  headrace doctor --url headrace://127.0.0.1:7071

  headrace doctor /var/lib/headrace

  headrace doctor /var/lib/headrace --repair --json

  headrace doctor /var/lib/headrace --archive s3://backups/headrace
"""

_LOOK_SECONDS: Final = 0.1
_REPAIRS: Final = {"none": "-", "possible": "with --repair", "done": "done"}


@with_option_groups
def doctor(
    directory: Annotated[
        str | None,
        typer.Argument(
            help="Directory of a store that no server has open. Default: that of the server.", metavar="DIR"
        ),
    ] = None,
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild indexes, remove stray files, cut torn tails; no message is lost.")
    ] = False,
    archive: Annotated[
        str | None,
        typer.Option(
            envvar="HEADRACE_ARCHIVE_URL",
            help="Check the archive of the store too: its URL, as the server has it.",
            metavar="URL",
        ),
    ] = None,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Check every frame, index, snapshot and catalog row of a disk store, also while a server runs.

    Without a directory the server checks its own store while it runs, which needs a token with full access. Repairs,
    and checks of the archive (--archive), need a directory that no server has open. Of a store in PostgreSQL, given as
    its URL, only the archive is checked.
    """
    if directory is None:
        if repair or archive is not None:
            raise Failure(Exit.USAGE, "--repair and --archive need the directory of a store that no server has open")
        _ask(server, as_json)
        return
    try:
        shown, report = _examined(directory, archive, repair)
    except (HeadraceError, OSError) as error:
        raise Failure(Exit.USAGE, str(error)) from None
    _tell({"directory": str(shown)}, shown, report, as_json)


def _ask(server: ServerOptions, as_json: bool) -> None:
    """Let the server check its store, and wait for that."""
    url = server.address().url
    with server.connected() as client:
        check = client.check_store()
        while check.state == "running":
            time.sleep(_LOOK_SECONDS)
            check = client.last_store_check()
    if check.state != "finished":
        raise Failure(Exit.REFUSED if check.state == "impossible" else Exit.FAILING, check.problem)
    _tell({"url": url}, Path("the store of the server"), check.report, as_json)


def _tell(where: dict[str, str], shown: Path, report: StoreReport, as_json: bool) -> None:
    if as_json:
        print_json({**where, "damaged": report.is_damaged, "report": report})
    else:
        _print(shown, report)
    if report.is_damaged:
        raise typer.Exit(Exit.REFUSED)


def _examined(store: str, archive: str | None, repair: bool) -> tuple[Path, StoreReport]:
    """What may be shown of the store, and what was found in it."""
    from headrace.core.reports.store_check import StoreReport as Findings
    from headrace.storage.disk.doctor.doctor import examine

    if store.startswith(("postgres:", "postgresql:")):
        if archive is None:
            # The URL is not quoted: it may contain a password.
            rule = "a store in PostgreSQL has no files to check: use its own tools, such as pg_amcheck"
            raise Failure(Exit.USAGE, f"{rule}; --archive checks its archive")
        directory, report, url = Path("the store in PostgreSQL"), Findings(), store
    else:
        directory = Path(store)
        report, url = examine(directory.absolute(), repair), f"file:{quote(str(directory.absolute()))}"
    if archive is not None and not report.is_damaged:
        _examine_archive(url, archive, report, repair)
    return directory, report


def _examine_archive(store: str, archive: str, report: StoreReport, repair: bool) -> None:
    from headrace.storage.archive.check import check_archive
    from headrace.storage.archive.files import open_files
    from headrace.storage.open import open_catalog

    catalog = open_catalog(store)
    try:
        check_archive(catalog, open_files(archive), report, repair)
    finally:
        catalog.close()


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
        f"{directory}: {counted(report.topics, 'topic')}, {counted(report.segments, 'segment')}, "
        f"{counted(report.frames, 'frame')}, {counted(report.messages, 'message')}, {bytes_shown(report.bytes)}"
        + (f", {counted(report.archive_files, 'file')} of the archive" if report.archive_files else "")
    )
    damage = sum(found.kind == "damage" for found in report.findings)
    repaired = sum(found.kind == "damage" and found.repair == "done" for found in report.findings)
    if not damage:
        print_line("no damage")
    else:
        print_line(f"damaged in {counted(damage, 'place')}, {repaired:,} of them repaired; everything else can be read")


def _short(directory: Path, file: str) -> str:
    path, root = Path(file), directory.absolute()
    return str(path.relative_to(root)) if path.is_relative_to(root) else file

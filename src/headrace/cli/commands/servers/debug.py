"""`headrace debug`: what a bug report needs, in one archive."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import ServerOptions
from headrace.cli.terminal.output import print_line, print_note
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.cli.remote.address import ServerAddress
    from headrace.client import Client

app = typer.Typer(help="Collect what a bug report needs.", no_args_is_help=True)

_PREFIX = "headrace-debug"


@app.command(
    "bundle",
    epilog="It contains names of topics, groups and tokens, and no messages or secrets. A part that the token may not "
    "read, or that fails, is named in errors.txt. Example: headrace debug bundle --output /tmp/bundle.tar.gz",
)
@with_option_groups
def bundle(
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            help="File to write. Default: headrace-debug-TIME.tar.gz here.", metavar="FILE", show_default=False
        ),
    ] = None,
    server: ServerOptions,
) -> None:
    """Write an archive with settings, health, recent logs, stacks, metrics and the last check of the store."""
    file = output or Path(time.strftime(f"{_PREFIX}-%Y%m%d-%H%M%S.tar.gz"))
    address = server.address()
    with server.connected() as client:
        parts, errors = _collected(client, address)
    if errors:
        parts["errors.txt"] = "".join(f"{line}\n" for line in errors).encode()
    try:
        # Only its owner may read it: it has the names of everything.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            _write(opened, parts)
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot write --output {file}: {error.strerror}") from None
    for line in errors:
        print_note(line)
    print_line(f"wrote {file} ({', '.join(parts)})")


def _collected(client: Client, address: ServerAddress) -> tuple[dict[str, bytes], list[str]]:
    """The files of the archive by name, and what is missing."""
    from headrace.cli.remote.scrape import metrics_text

    parts: dict[str, bytes] = {}
    errors: list[str] = []

    def collect(name: str, look: Callable[[], Any]) -> Any:
        try:
            return look()
        except HeadraceError as error:
            errors.append(f"{name} is missing: {error}")

    for name, look in {
        "health.json": client.describe_health,
        "settings.json": client.describe_settings,
        "servers.json": client.list_servers,
        "store-check.json": client.last_store_check,
        "pipelines.json": client.list_pipelines,
    }.items():
        found = collect(name, look)
        if found is not None:
            parts[name] = msgspec.json.format(msgspec.json.encode(found), indent=2)
    process = collect("process.json", client.describe_process)
    if process is not None:
        facts = {"server_id": process.server_id, "pid": process.pid, "versions": process.versions}
        parts["process.json"] = msgspec.json.format(msgspec.json.encode(facts), indent=2)
        parts["logs.txt"] = "".join(f"{line}\n" for line in process.logs).encode()
        parts["stacks.txt"] = "".join(f"{name}\n{stack}\n" for name, stack in process.stacks.items()).encode()
    for each in collect("metrics", client.list_servers) or ():
        text = metrics_text(each, address)
        if isinstance(text, str):
            parts[f"metrics-{each.id}.txt"] = text.encode()
        else:
            errors.append(f"metrics-{each.id}.txt is missing: {text}")
    return parts, errors


def _write(opened: Any, parts: dict[str, bytes]) -> None:
    with tarfile.open(fileobj=opened, mode="w:gz") as archive:
        for name, content in parts.items():
            entry = tarfile.TarInfo(f"{_PREFIX}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))

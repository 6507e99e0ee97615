"""Options that commands share. Nothing heavy is loaded here; `connected` does that, for commands that call a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from headrace.cli.remote.http import HttpClient

DEFAULT_URL: Final = "http://127.0.0.1:7070"

Url = Annotated[str, typer.Option("--url", envvar="HEADRACE_URL", help="The server.", rich_help_panel="Server")]
# For commands that go over Flight too.
AnyUrl = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="HEADRACE_URL",
        help="The server: http://HOST:PORT, or headrace://HOST:PORT for Arrow Flight, which is faster.",
        rich_help_panel="Server",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="HEADRACE_TOKEN",
        help="Who you are. Better in the environment.",
        show_envvar=True,
        rich_help_panel="Server",
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        envvar="HEADRACE_CA",
        help="PEM file of who signed the server's certificate.",
        metavar="FILE",
        rich_help_panel="Server",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


def connected(url: str, token: str | None, ca: Path | None) -> HttpClient:
    """A connection to a server over HTTP."""
    from headrace.cli.remote.http import HttpClient

    return HttpClient(url, token, ca)


def is_flight(url: str) -> bool:
    """Whether a URL is one of Flight."""
    return url.startswith(("headrace://", "headrace+tls://"))

"""Options that commands share. Heavy imports happen only in `connected`, for commands that call a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from headrace.cli.remote.http import HttpClient

DEFAULT_URL: Final = "http://127.0.0.1:7070"

Url = Annotated[
    str, typer.Option("--url", envvar="HEADRACE_URL", help="Address of the server.", rich_help_panel="Server")
]
# For commands that also work over Arrow Flight.
AnyUrl = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="HEADRACE_URL",
        help="Address of the server: http://HOST:PORT, or headrace://HOST:PORT for Arrow Flight (faster).",
        rich_help_panel="Server",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="HEADRACE_TOKEN",
        help="Access token. Prefer the environment variable: command lines are visible to others.",
        show_envvar=True,
        rich_help_panel="Server",
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        envvar="HEADRACE_CA",
        help="PEM file of the CA that signed the server's certificate.",
        metavar="FILE",
        rich_help_panel="Server",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def connected(url: str, token: str | None, ca: Path | None) -> HttpClient:
    """Return an HTTP client for the server."""
    from headrace.cli.remote.http import HttpClient

    return HttpClient(url, token, ca)


def is_flight(url: str) -> bool:
    """Whether a URL means Arrow Flight."""
    return url.startswith(("headrace://", "headrace+tls://"))

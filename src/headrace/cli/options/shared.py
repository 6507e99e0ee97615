"""Options that commands share. Heavy imports happen only in `connected`, for commands that call a server."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.completion import complete_groups, complete_topics

if TYPE_CHECKING:
    from headrace.cli.remote.address import ServerAddress
    from headrace.client.client import Client

Topic = Annotated[
    str, typer.Argument(help="Name of the topic; case-insensitive.", metavar="TOPIC", autocompletion=complete_topics)
]
Group = Annotated[str, typer.Argument(help="Name of the group.", metavar="GROUP", autocompletion=complete_groups)]
Token = Annotated[
    str | None,
    typer.Option(
        help="Access token. Prefer HEADRACE_TOKEN or a profile: command lines are visible to others.",
        metavar="TOKEN",
        rich_help_panel="Server",
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        help="PEM file of the CA that signed the server's certificate. Default: HEADRACE_CA.",
        metavar="FILE",
        rich_help_panel="Server",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options that name the server and the caller."""

    url: Annotated[
        str | None,
        typer.Option(
            help="Address of the server, headrace://HOST:PORT. Default: HEADRACE_URL, the profile in use, or "
            "headrace://127.0.0.1:7071.",
            metavar="URL",
            rich_help_panel="Server",
        ),
    ] = None
    token: Token = None
    ca: Ca = None

    @property
    def is_named(self) -> bool:
        """Whether the command line itself names a server, by --url or --profile."""
        from headrace.cli.remote.address import asked_profile

        return self.url is not None or asked_profile() is not None

    @property
    def is_chosen(self) -> bool:
        """The same, or the environment or a profile in use does."""
        import os

        from headrace.cli.remote.profiles import Profiles

        variables = ("HEADRACE_URL", "HEADRACE_PROFILE")
        return self.is_named or any(map(os.environ.get, variables)) or Profiles.load().active is not None

    def address(self) -> ServerAddress:
        """The server that the options, the environment or a profile name."""
        from headrace.cli.remote.address import ServerAddress

        return ServerAddress.of(self.url, self.token, self.ca)

    def connected(
        self, timeout_seconds: float | None = None, wait_seconds: float = 0.0
    ) -> AbstractContextManager[Client]:
        """A client of the server; its errors end the command. See `remote.connection`."""
        from headrace.cli.remote.connection import CALL_SECONDS, connected

        patience = CALL_SECONDS if timeout_seconds is None else timeout_seconds
        return connected(self.url, self.token, self.ca, patience, wait_seconds)


def option_of(field: str) -> str | None:
    """The option of the running command that sets a field, as the user types it; None if there is none."""
    from typer._click.globals import get_current_context

    context = get_current_context(silent=True)
    named = {field, field.removesuffix("_seconds"), field.removesuffix("_bytes")}
    for parameter in context.command.params if context is not None else ():
        if parameter.name in named and parameter.opts[0].startswith("--"):
            return parameter.opts[0]
    return None


def confirm(question: str, refusal: str, is_confirmed: bool) -> None:
    """Ask on a terminal before something that cannot be undone; elsewhere refuse without --yes."""
    import sys

    if is_confirmed:
        return
    if not sys.stdin.isatty():
        from headrace.cli.exits import Exit, Failure

        raise Failure(Exit.USAGE, f"{refusal}: add --yes to confirm")
    typer.confirm(question, abort=True)


def text_of_file(option: str, file: str) -> str:
    """The text of a file that an option names; `-` is standard input."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Exit.USAGE, f"{option} {file}: {error}") from None

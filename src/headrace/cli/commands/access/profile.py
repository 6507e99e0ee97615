"""`headrace profile`: add, use, list, remove. A profile names a server with its token; see `profiles`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.shared import Json
from headrace.cli.remote.profiles import Profile, Profiles, profiles_file
from headrace.cli.terminal.output import print_json, print_line, print_note, print_table

app = typer.Typer(
    help="Name servers with their tokens, and choose the one that commands use.",
    epilog="--url and HEADRACE_URL win over the profile in use; `headrace --profile NAME …` wins over HEADRACE_URL.",
    no_args_is_help=True,
)

Name = Annotated[
    str,
    typer.Argument(
        help="Name of the profile.", metavar="NAME", autocompletion=lambda: sorted(Profiles.load().profiles)
    ),
]


@app.command(
    "add",
    epilog="Examples: headrace profile add local --url headrace://127.0.0.1:7071; "
    "headrace profile add prod --url headrace+tls://broker.example:7071 --ca ca.pem < token.txt",
)
def add(
    name: Name,
    url: Annotated[str, typer.Option(help="Address of the server, headrace://HOST:PORT.", metavar="URL")],
    token: Annotated[
        bool,
        typer.Option(
            "--token/--no-token",
            help="Read a token: from the terminal without showing it, or from stdin. By default if stdin is a file.",
            show_default=False,
        ),
    ] = False,
    ca: Annotated[
        Path | None,
        typer.Option(help="PEM file of the CA that signed the server's certificate.", metavar="FILE"),
    ] = None,
) -> None:
    """Add a profile, or replace one. The first profile is used at once."""
    from headrace.client.addresses import parse_addresses
    from headrace.core.errors import InvalidInput

    try:
        parse_addresses(url, "--url")
    except InvalidInput as error:
        raise Failure(Exit.USAGE, str(error)) from None
    if not name or not name.isprintable():
        raise Failure(Exit.USAGE, f"the profile is {name!r}: it needs a name that can be printed")
    profiles = Profiles.load()
    profiles.profiles[name] = Profile(url, _token(token), None if ca is None else str(ca.absolute()))
    if len(profiles.profiles) == 1:
        profiles.active = name
    profiles.save()
    print_line(f"added profile {name} for {url}{', now in use' if profiles.active == name else ''}")


def _token(is_wanted: bool) -> str | None:
    """A token that was typed or piped; it never is on the command line, which others can see."""
    import sys

    if not is_wanted and not _is_given():
        return None
    if sys.stdin.isatty():
        import getpass

        given = getpass.getpass("Token: ")
    else:
        given = sys.stdin.readline()
    return given.strip() or None


def _is_given() -> bool:
    import os
    import stat
    import sys

    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


@app.command("use")
def use(name: Name) -> None:
    """Use a profile from now on, in all commands of this user."""
    profiles = Profiles.load()
    profiles.active = _known(profiles, name)
    profiles.save()
    print_line(f"using profile {name} for {profiles.profiles[name].url}")


@app.command("list")
def list_profiles(as_json: Json = False) -> None:
    """List profiles. Tokens are never shown."""
    profiles = Profiles.load()
    rows = [
        (name, name == profiles.active, each.url, each.token is not None, each.ca) for name, each in _sorted(profiles)
    ]
    if as_json:
        names = ("name", "in_use", "url", "has_token", "ca")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif not rows:
        print_line("no profiles: add one with `headrace profile add NAME --url headrace://HOST:PORT`")
    else:
        print_table(("profile", "in use", "url", "token", "ca"), rows)
        print_note(f"stored in {profiles_file()}")


def _sorted(profiles: Profiles) -> list[tuple[str, Profile]]:
    return sorted(profiles.profiles.items())


@app.command("remove")
def remove(name: Name) -> None:
    """Remove a profile with its token."""
    profiles = Profiles.load()
    del profiles.profiles[_known(profiles, name)]
    if profiles.active == name:
        profiles.active = None
    profiles.save()
    print_line(f"removed profile {name}{'' if profiles.active else '; no profile is in use now'}")


def _known(profiles: Profiles, name: str) -> str:
    if name not in profiles.profiles:
        known = ", ".join(sorted(profiles.profiles)) or "none"
        raise Failure(Exit.REFUSED, f"profile {name!r} does not exist: profiles are {known}")
    return name

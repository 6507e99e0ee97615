"""`headrace token`: create, list, rotate, revoke, on the catalog of a store or at a running server; see `tokens`."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json, ServerOptions, Yes, confirm
from headrace.cli.options.topic_settings import parse_amount
from headrace.cli.terminal.output import print_json, print_line, print_note, print_table
from headrace.core.amounts import SECONDS
from headrace.core.text import time_shown

if TYPE_CHECKING:
    from headrace.core.reports.descriptions import NewToken, TokenDescription

app = typer.Typer(
    help="Manage access tokens. Takes effect on a running server within a second.",
    epilog="They act on the server that all commands call (--url, --profile, HEADRACE_URL, the profile in use), which "
    "needs a token with full access. With --store, or where no server is named and there is a store in this directory, "
    "they change the store, also while a server runs on it. A store is never created here: `headrace serve` does that.",
    no_args_is_help=True,
)

_USERS_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class TokenStore:
    """The store whose tokens are meant, if no server is."""

    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            help="URL of the store. Default: HEADRACE_STORE, or file:./headrace-data if that exists, where no server "
            "is named.",
            metavar="URL",
        ),
    ] = None
    audit_log: Annotated[
        str,
        typer.Option(
            "--audit-log",
            envvar="HEADRACE_AUDIT_LOG",
            help="Record changes of a store in this file.",
            metavar="FILE",
            show_default=False,
        ),
    ] = ""


Expires = Annotated[
    str | None,
    typer.Option(help="Lifetime of the token: 90d, 12h, 30m, 60s. By default it never expires.", metavar="TIME"),
]


@app.command(
    "create",
    epilog="Examples: headrace token create admin; headrace token create till --publish 'orders.*' --producer till-7; "
    "headrace token create reports --read 'orders.*' --group 'reports-*' --expires 90d",
)
@with_option_groups
def create(
    name: Annotated[str, typer.Argument(help="Name of the token's user; shown by `token list`.", metavar="NAME")],
    *,
    publish: Annotated[list[str] | None, typer.Option(help="May publish to these topics.", metavar="PATTERN")] = None,
    read: Annotated[
        list[str] | None, typer.Option(help="May read these topics, and create their groups.", metavar="PATTERN")
    ] = None,
    manage: Annotated[
        list[str] | None,
        typer.Option(
            help="May create, alter and delete these topics, and seek and delete their groups.", metavar="PATTERN"
        ),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Only with these groups. By default all.", metavar="PATTERN")
    ] = None,
    producer: Annotated[
        list[str] | None,
        typer.Option(
            help="Only with these producer ids. By default all. One that is named without * is refused to all others.",
            metavar="PATTERN",
        ),
    ] = None,
    forward_only: Annotated[
        bool, typer.Option("--forward-only", help="Commits of Kafka's clients must not move groups back.")
    ] = False,
    expires: Expires = None,
    grace: Annotated[
        str | None,
        typer.Option(
            help="Of the first token: serve callers without a token for this time as before: 10m, 1h, at most 7d. "
            "`headrace status` shows how long it lasts.",
            metavar="TIME",
        ),
    ] = None,
    yes: Yes = False,
    place: TokenStore,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Create a token and print it once. Without rights it may do everything; * matches any characters.

    Once a store has a token, every caller needs one: the first token of a store that is in use asks for confirmation.
    With --grace it takes effect later, so that programs can be given tokens meanwhile.
    """
    from headrace.cli.remote.tokens import opened, users_without_token
    from headrace.core.rights import ALL, Right

    patterns = {Right.PUBLISH: publish or [], Right.READ: read or [], Right.MANAGE: manage or []}
    grants = [(pattern, [right.value]) for right, each in patterns.items() for pattern in each]
    life_seconds = None if expires is None else parse_amount("--expires", expires, SECONDS)
    grace_seconds = None if grace is None else parse_amount("--grace", grace, SECONDS)
    everything = [("*", [right.value for right in Right])]
    with opened(server, place.store, place.audit_log) as tokens:
        _confirm_first(users_without_token(tokens), grace, yes)
        limits = group or ALL, producer or ALL, life_seconds, forward_only, grace_seconds
        made = tokens.create_token(name, grants or everything, *limits)
    _print_new(made, as_json)


def _confirm_first(users: list[str], grace: str | None, is_confirmed: bool) -> None:
    """Ask before the first token, which shuts out everybody else."""
    if users:
        rest = [f"and {len(users) - _USERS_SHOWN} more"] if len(users) > _USERS_SHOWN else []
        shown = ", ".join(users[:_USERS_SHOWN] + rest)
        when = "within a second (later with --grace 10m)" if grace is None else f"after {grace}"
        what = f"with the first token every caller without one is refused {when}; in use: {shown}"
        if sys.stdin.isatty() and not is_confirmed:
            print_note(what)
        confirm("Create the first token?", what, is_confirmed)


@app.command("rotate", epilog="Example: headrace token rotate till-7 --keep 1h")
@with_option_groups
def rotate(
    name: Annotated[str, typer.Argument(help="Name or id of the token.", metavar="NAME")],
    *,
    keep: Annotated[str, typer.Option(help="How long the old token stays valid: 1h, 30m, 0s.", metavar="TIME")] = "1h",
    expires: Annotated[
        str | None,
        typer.Option(
            help="Lifetime of the new token: 90d, 12h, 30m, 60s. By default that of the old one.", metavar="TIME"
        ),
    ] = None,
    place: TokenStore,
    as_json: Json = False,
    server: ServerOptions,
) -> None:
    """Replace a token by a new one with the same rights. The old token stays valid for the --keep time."""
    keep_seconds = parse_amount("--keep", keep, SECONDS)
    life_seconds = None if expires is None else parse_amount("--expires", expires, SECONDS)
    from headrace.cli.remote.tokens import opened

    with opened(server, place.store, place.audit_log) as tokens:
        made = tokens.rotate_token(name, keep_seconds, life_seconds)
    _print_new(made, as_json)
    if not as_json:
        print_note(f"token {', '.join(made.replaced)} expires in {keep}")


def _print_new(made: NewToken, as_json: bool) -> None:
    token = made.token
    if as_json:
        print_json({**_shown(token), "token": made.text})
        return
    print_line(made.text)
    end = "" if token.expires_us is None else f"expires {time_shown(token.expires_us)}; "
    if token.grace_until_us is not None:
        print_note(_grace_shown(token.grace_until_us))
    print_note(f"token {token.id} for {token.name}: {end}save it now, it is not shown again; pass it as HEADRACE_TOKEN")


@app.command("list")
@with_option_groups
def list_tokens(*, place: TokenStore, as_json: Json = False, server: ServerOptions) -> None:
    """List tokens with their rights. The secrets are never shown."""
    from headrace.cli.remote.tokens import opened

    with opened(server, place.store) as tokens:
        records = tokens.list_tokens()
    if as_json:
        print_json([_shown(each) for each in records])
    elif not records:
        print_line("no tokens: everyone on this machine has full access, other machines have none")
    else:
        print_table(
            ("id", "name", "created", "expires", "last used", "rights", "groups", "producers"),
            [
                (
                    each.id,
                    each.name,
                    time_shown(each.created_us),
                    "never" if each.expires_us is None else time_shown(each.expires_us),
                    None if each.used_us is None else time_shown(each.used_us),
                    [f"{right} {topic}" for right, topic in _pairs(each)] + ["forward only"] * _is_forward_only(each),
                    _limits(each)[0],
                    _limits(each)[1],
                )
                for each in records
            ],
        )
        graces = [each.grace_until_us for each in records if each.grace_until_us is not None]
        if graces and max(graces) > time.time_ns() // 1000:
            print_note(_grace_shown(max(graces)))


@app.command("revoke")
@with_option_groups
def revoke(
    token_id: Annotated[str, typer.Argument(help="Id of the token, from `headrace token list`.", metavar="ID")],
    *,
    place: TokenStore,
    server: ServerOptions,
) -> None:
    """Revoke a token. All calls with it fail within a second, running ones too."""
    from headrace.cli.remote.tokens import opened

    with opened(server, place.store, place.audit_log) as tokens:
        known = tokens.list_tokens()
        if not tokens.revoke_token(token_id):
            raise Failure(Exit.REFUSED, f"token {token_id[:100]!r} does not exist: `headrace token list` shows the ids")
    print_line(f"revoked token {token_id}")
    if len(known) == 1:
        print_note("it was the last token: everyone on the server's machine has full access now")


def _grace_shown(until_us: int) -> str:
    return f"callers without a token are served until {time_shown(until_us)}"


def _shown(token: TokenDescription) -> dict[str, Any]:
    groups, producers = _limits(token)
    return {
        "id": token.id,
        "name": token.name,
        "created_us": token.created_us,
        "expires_us": token.expires_us,
        "used_us": token.used_us,
        "grace_until_us": token.grace_until_us,
        "rights": _rights(token),
        "groups": groups,
        "producers": producers,
        "forward_only": _is_forward_only(token),
    }


def _pairs(token: TokenDescription) -> list[tuple[str, str]]:
    return sorted((right.value, grant.pattern) for grant in token.grants for right in grant.rights)


def _rights(token: TokenDescription) -> dict[str, list[str]]:
    pairs = _pairs(token)
    return {right: [pattern for given, pattern in pairs if given == right] for right, _ in pairs}


def _is_forward_only(token: TokenDescription) -> bool:
    return any(grant.forward_only for grant in token.grants)


def _limits(token: TokenDescription) -> tuple[list[str], list[str]]:
    """The group and producer id patterns that a token is limited to."""
    groups = sorted({pattern for grant in token.grants for pattern in grant.groups})
    return groups, sorted({pattern for grant in token.grants for pattern in grant.producers})

"""`headrace token`: create, list, rotate, revoke, on the catalog of a store.

A server on the same store can keep running: these commands open only the catalog, and the server reads it again every
second. A store that does not exist is not created. Changes are written to the audit log if a file is given.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options import Json
from headrace.cli.output import print_json, print_line, print_note, print_table, time_shown
from headrace.cli.topic_settings import SECONDS, parse_amount
from headrace.core.errors import HeadraceError
from headrace.core.rights import ALL, Right

if TYPE_CHECKING:
    from headrace.broker.access import Access
    from headrace.storage.catalog import TokenRecord

app = typer.Typer(help="Manage access tokens. Takes effect on a running server within a second.", no_args_is_help=True)

Store = Annotated[str, typer.Option("--store", envvar="HEADRACE_STORE", help="URL of the store.", metavar="URL")]
AuditLog = Annotated[
    str,
    typer.Option("--audit-log", envvar="HEADRACE_AUDIT_LOG", help="Record changes in this file.", metavar="FILE"),
]
Expires = Annotated[
    str | None,
    typer.Option(help="Lifetime of the token: 90d, 12h, 30m, 60s. By default it never expires.", metavar="TIME"),
]
DEFAULT_STORE: Final = "file:./headrace-data"


@app.command(
    "create",
    epilog="Examples: headrace token create admin; headrace token create till --publish 'orders.*' --producer till-7; "
    "headrace token create reports --read 'orders.*' --group 'reports-*' --expires 90d",
)
def create(
    name: Annotated[str, typer.Argument(help="Name of the token's user; shown by `token list`.")],
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
        list[str] | None, typer.Option(help="Only with these producer ids. By default all.", metavar="PATTERN")
    ] = None,
    expires: Expires = None,
    store: Store = DEFAULT_STORE,
    audit_log: AuditLog = "",
    as_json: Json = False,
) -> None:
    """Create a token and print it once. Without rights it may do everything; * matches any characters."""
    patterns = {Right.PUBLISH: publish or [], Right.READ: read or [], Right.MANAGE: manage or []}
    grants = [(pattern, [right.value]) for right, each in patterns.items() for pattern in each]
    life_seconds = None if expires is None else parse_amount("--expires", expires, SECONDS)
    with _access(store, audit_log) as access:
        everything = [("*", [right.value for right in Right])]
        record, secret = access.create(name, grants or everything, group or ALL, producer or ALL, life_seconds)
        _record("create_token", record)
    _print_new(record, secret, as_json)


@app.command("rotate", epilog="Example: headrace token rotate till-7 --keep 1h")
def rotate(
    name: Annotated[str, typer.Argument(help="Name or id of the token.", metavar="NAME")],
    keep: Annotated[str, typer.Option(help="How long the old token stays valid: 1h, 30m, 0s.", metavar="TIME")] = "1h",
    expires: Annotated[
        str | None,
        typer.Option(
            help="Lifetime of the new token: 90d, 12h, 30m, 60s. By default that of the old one.", metavar="TIME"
        ),
    ] = None,
    store: Store = DEFAULT_STORE,
    audit_log: AuditLog = "",
    as_json: Json = False,
) -> None:
    """Replace a token by a new one with the same rights. The old token stays valid for the --keep time."""
    keep_seconds = parse_amount("--keep", keep, SECONDS)
    life_seconds = None if expires is None else parse_amount("--expires", expires, SECONDS)
    with _access(store, audit_log) as access:
        record, secret, old = access.rotate(name, keep_seconds, life_seconds)
        _record("rotate_token", record, replaced=[each.id for each in old])
    _print_new(record, secret, as_json)
    if not as_json:
        print_note(f"token {', '.join(each.id for each in old)} expires in {keep}")


def _print_new(record: TokenRecord, secret: str, as_json: bool) -> None:
    if as_json:
        print_json({**_shown(record), "token": secret})
        return
    print_line(secret)
    end = "" if record.expires_us is None else f"expires {time_shown(record.expires_us)}; "
    print_note(
        f"token {record.id} for {record.name}: {end}save it now, it is not shown again; pass it as HEADRACE_TOKEN"
    )


@app.command("list")
def list_tokens(store: Store = DEFAULT_STORE, as_json: Json = False) -> None:
    """List tokens with their rights. The secrets are never shown."""
    with _access(store) as access:
        records = access.list()
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
                    [f"{right} {topic}" for right, topic in _pairs(each)],
                    _limits(each)[0],
                    _limits(each)[1],
                )
                for each in records
            ],
        )


@app.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(help="Id of the token, from `headrace token list`.", metavar="ID")],
    store: Store = DEFAULT_STORE,
    audit_log: AuditLog = "",
) -> None:
    """Revoke a token. All calls with it fail within a second, running ones too."""
    with _access(store, audit_log) as access:
        known = {each.id: each for each in access.list()}
        if not access.revoke(token_id):
            raise Failure(Exit.REFUSED, f"token {token_id[:100]!r} does not exist: `headrace token list` shows the ids")
        _record("revoke_token", known[token_id])
        is_last = not access.list()
    print_line(f"revoked token {token_id}")
    if is_last:
        print_note("it was the last token: everyone on this machine has full access now")


@contextmanager
def _access(store: str, audit_log: str = "") -> Iterator[Access]:
    # Imported here: other commands do not need it and start faster without it.
    from headrace.broker.access import Access
    from headrace.edge import audit
    from headrace.storage.open import open_catalog

    if audit_log:
        try:
            audit.write_to(audit_log)
        except OSError as error:
            raise Failure(Exit.USAGE, f"cannot write the audit log {audit_log}: {error.strerror}") from None
    try:
        catalog = open_catalog(store)
        try:
            yield Access(catalog)
        finally:
            catalog.close()
    except HeadraceError as error:
        raise Failure(Exit.USAGE, str(error)) from None


def _record(operation: str, token: TokenRecord, **more: Any) -> None:
    from headrace.edge import audit

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    audit.record("done", operation, f"os:{user}", "local", token=token.id, name=token.name, **more)


def _shown(token: TokenRecord) -> dict[str, Any]:
    groups, producers = _limits(token)
    return {
        "id": token.id,
        "name": token.name,
        "created_us": token.created_us,
        "expires_us": token.expires_us,
        "used_us": token.used_us,
        "rights": _rights(token),
        "groups": groups,
        "producers": producers,
    }


def _pairs(token: TokenRecord) -> list[tuple[str, str]]:
    return sorted((right.value, grant.pattern) for grant in token.grants for right in grant.rights)


def _rights(token: TokenRecord) -> dict[str, list[str]]:
    pairs = _pairs(token)
    return {right: [pattern for given, pattern in pairs if given == right] for right, _ in pairs}


def _limits(token: TokenRecord) -> tuple[list[str], list[str]]:
    """The group and producer id patterns that a token is limited to."""
    groups = sorted({pattern for grant in token.grants for pattern in grant.groups})
    return groups, sorted({pattern for grant in token.grants for pattern in grant.producers})

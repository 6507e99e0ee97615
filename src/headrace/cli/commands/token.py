"""`headrace token`: create, list, revoke, on the catalog of a store.

A server that runs on the store need not be stopped nor asked: only the catalog is opened, not the store, and the
server looks at it every second.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headrace.cli.exits import Exit, Failure
from headrace.cli.options import Json
from headrace.cli.output import print_json, print_line, print_note, print_table, time_shown
from headrace.core.errors import HeadraceError
from headrace.core.rights import Right

if TYPE_CHECKING:
    from headrace.broker.access import Access
    from headrace.storage.catalog import TokenRecord

app = typer.Typer(help="Say who may come in; works beside a running server too.", no_args_is_help=True)

Store = Annotated[str, typer.Option("--store", envvar="HEADRACE_STORE", help="The store.", metavar="URL")]
DEFAULT_STORE: Final = "file:./headrace-data"


@app.command(
    "create",
    epilog="Examples: headrace token create admin; headrace token create till-7 --publish 'orders.*'; "
    "headrace token create reports --read 'orders.*' --read returns",
)
def create(
    name: Annotated[str, typer.Argument(help="Who it is for; shown in lists.")],
    publish: Annotated[list[str] | None, typer.Option(help="May publish to these topics.", metavar="PATTERN")] = None,
    read: Annotated[list[str] | None, typer.Option(help="May read these topics.", metavar="PATTERN")] = None,
    manage: Annotated[
        list[str] | None, typer.Option(help="May create, alter, delete these, and their groups.", metavar="PATTERN")
    ] = None,
    store: Store = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    """Make a token and show it, once. Without rights it may do everything; * stands for any characters."""
    patterns = {Right.PUBLISH: publish or [], Right.READ: read or [], Right.MANAGE: manage or []}
    grants = [(pattern, [right.value]) for right, each in patterns.items() for pattern in each]
    with _access(store) as access:
        record, secret = access.create(name, grants or [("*", [right.value for right in Right])])
    if as_json:
        print_json({"id": record.id, "name": record.name, "token": secret, "rights": _rights(record)})
        return
    print_line(secret)
    print_note(f"token {record.id} for {record.name}: keep it, it is not shown again; use it as HEADRACE_TOKEN")


@app.command("list")
def list_tokens(store: Store = DEFAULT_STORE, as_json: Json = False) -> None:
    """List tokens and what they allow, never the tokens themselves."""
    with _access(store) as access:
        records = access.list()
    if as_json:
        print_json(
            [
                {"id": each.id, "name": each.name, "created_us": each.created_us, "rights": _rights(each)}
                for each in records
            ]
        )
    elif not records:
        print_line("no tokens: everyone on this machine may do everything, and nobody from elsewhere")
    else:
        print_table(
            ("id", "name", "made", "rights"),
            [
                (each.id, each.name, time_shown(each.created_us), [f"{right} {topic}" for right, topic in _pairs(each)])
                for each in records
            ],
        )


@app.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(help="The id that `headrace token list` shows.", metavar="ID")],
    store: Store = DEFAULT_STORE,
) -> None:
    """Let a token in no more; a running server knows it within a second."""
    with _access(store) as access:
        if not access.revoke(token_id):
            raise Failure(Exit.REFUSED, f"there is no token {token_id[:100]!r}: `headrace token list` shows the ids")
        is_last = not access.list()
    print_line(f"token {token_id} is revoked")
    if is_last:
        print_note("it was the last one: everyone on this machine may do everything now")


@contextmanager
def _access(store: str) -> Iterator[Access]:
    # Loaded here: the other commands need nothing of it, and are quicker without.
    from headrace.broker.access import Access
    from headrace.storage.open import open_catalog

    try:
        catalog = open_catalog(store)
        try:
            yield Access(catalog)
        finally:
            catalog.close()
    except HeadraceError as error:
        raise Failure(Exit.USAGE, str(error)) from None


def _pairs(token: TokenRecord) -> list[tuple[str, str]]:
    return sorted((right.value, grant.pattern) for grant in token.grants for right in grant.rights)


def _rights(token: TokenRecord) -> dict[str, list[str]]:
    pairs = _pairs(token)
    return {right: [pattern for given, pattern in pairs if given == right] for right, _ in pairs}

"""Where tokens are administered: on the catalog of a store, or at a running server.

Both do the same. On a store no token is needed, since a user who can write its files may do everything; a server on the
same store can keep running, and reads the catalog again every second. At a server the caller needs full access. A store
that does not exist is not created.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.shared import ServerOptions
from headrace.core.errors import HeadraceError
from headrace.core.reports.descriptions import NewToken, TokenDescription

if TYPE_CHECKING:
    from headrace.broker.access import Access


class Tokens(Protocol):
    """What can be done with tokens; a `Client` can."""

    def list_tokens(self) -> list[TokenDescription]: ...

    def create_token(
        self,
        name: str,
        grants: Iterable[tuple[str, Iterable[str]]],
        groups: Iterable[str] = ...,
        producers: Iterable[str] = ...,
        life_seconds: float | None = None,
        forward_only: bool = False,
    ) -> NewToken: ...

    def rotate_token(self, name: str, keep_seconds: float, life_seconds: float | None = None) -> NewToken: ...

    def revoke_token(self, token_id: str) -> bool: ...


@contextmanager
def opened(server: ServerOptions, store: str, audit_log: str = "") -> Iterator[Tokens]:
    """The tokens of the server that `--url` or `--profile` names, else of a store."""
    if server.is_named:
        with server.connected() as client:
            yield client
        return
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
            yield StoreTokens(Access(catalog))
        finally:
            catalog.close()
    except HeadraceError as error:
        raise Failure(Exit.USAGE, f"{error} (for the tokens of a running server give --url)") from None


class StoreTokens:
    """The tokens of a store, whose changes are recorded in the audit log of this process."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def list_tokens(self) -> list[TokenDescription]:
        """All tokens."""
        from headrace.broker.access import described

        return [described(each) for each in self._access.list()]

    def create_token(
        self,
        name: str,
        grants: Iterable[tuple[str, Iterable[str]]],
        groups: Iterable[str] = ("*",),
        producers: Iterable[str] = ("*",),
        life_seconds: float | None = None,
        forward_only: bool = False,
    ) -> NewToken:
        """Make a token."""
        from headrace.broker.access import described

        record, text = self._access.create(name, grants, groups, producers, life_seconds, forward_only)
        _record("create_token", record.id, record.name)
        return NewToken(described(record), text, [])

    def rotate_token(self, name: str, keep_seconds: float, life_seconds: float | None = None) -> NewToken:
        """Replace the tokens of a name."""
        from headrace.broker.access import described

        record, text, old = self._access.rotate(name, keep_seconds, life_seconds)
        replaced = [each.id for each in old]
        _record("rotate_token", record.id, record.name, replaced=replaced)
        return NewToken(described(record), text, replaced)

    def revoke_token(self, token_id: str) -> bool:
        """Revoke a token; whether it existed."""
        names = {each.id: each.name for each in self._access.list()}
        is_revoked = self._access.revoke(token_id)
        if is_revoked:
            _record("revoke_token", token_id, names[token_id])
        return is_revoked


def _record(operation: str, token_id: str, name: str, **more: Any) -> None:
    from headrace.edge import audit

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    audit.record("done", operation, f"os:{user}", "local", token=token_id, name=name, **more)

"""Access tokens as rows of the catalog, the same on every engine. Only the hash of a secret is stored. Thread-safe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Insert, delete, insert, or_, select, update

from headrace.core.hashes.scram import ScramSecret
from headrace.core.rights import Grant
from headrace.storage.tables import all_tokens
from headrace.storage.transactions import SHORT_PATIENCE_SECONDS, Transactions

# Created at import: two threads that are the first to decode a type crash msgspec 0.22.
_GRANTS: Final = msgspec.json.Decoder(tuple[Grant, ...])
_SCRAM: Final = msgspec.json.Decoder(ScramSecret)


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as stored: never the secret itself. Until `grace_until_us` callers without a token are served."""

    id: str
    name: str
    secret_hash: str
    grants: tuple[Grant, ...]
    created_us: int
    expires_us: int | None = None
    used_us: int | None = None
    scram: ScramSecret | None = None
    grace_until_us: int | None = None


class TokenRows:
    """The tokens of a store."""

    def __init__(self, transactions: Transactions) -> None:
        self._do = transactions.do

    def all(self) -> list[TokenRecord]:
        """All tokens in the order of creation."""
        query = select(all_tokens).order_by(all_tokens.c.created_us, all_tokens.c.tokenid)
        # Called for an event loop, which must not be blocked for long.
        rows = self._do(lambda connection: connection.execute(query).all(), SHORT_PATIENCE_SECONDS)
        return [_token(row) for row in rows]

    def add(self, token: TokenRecord) -> None:
        """Add a token."""
        self._do(lambda connection: connection.execute(_row(token)))

    def replace(self, token: TokenRecord, expires_us: Mapping[str, int]) -> None:
        """Add a token, and set the expiry of others, in one transaction."""

        def replace(connection: Connection) -> None:
            for token_id, end_us in expires_us.items():
                statement = update(all_tokens).where(all_tokens.c.tokenid == token_id)
                connection.execute(statement.values(expires_us=end_us))
            connection.execute(_row(token))

        self._do(replace)

    def put_uses(self, used_us: Mapping[str, int]) -> None:
        """Store when tokens were last used; a later use on another server is kept."""

        def put(connection: Connection) -> None:
            for token_id, us in used_us.items():
                is_newer = or_(all_tokens.c.used_us.is_(None), all_tokens.c.used_us < us)
                statement = update(all_tokens).where(all_tokens.c.tokenid == token_id, is_newer)
                connection.execute(statement.values(used_us=us))

        self._do(put, SHORT_PATIENCE_SECONDS)

    def remove(self, token_id: str) -> bool:
        """Delete a token; returns whether it existed."""
        statement = delete(all_tokens).where(all_tokens.c.tokenid == token_id)
        return self._do(lambda connection: connection.execute(statement).rowcount) > 0


def _token(row: Any) -> TokenRecord:
    times = (row.created_us, row.expires_us, row.used_us)
    scram = None if row.scram is None else _SCRAM.decode(row.scram)
    grants = _GRANTS.decode(row.grants)
    return TokenRecord(row.tokenid, row.name, row.secret_hash, grants, *times, scram, row.grace_until_us)


def _row(token: TokenRecord) -> Insert:
    values = {"tokenid": token.id, "name": token.name, "secret_hash": token.secret_hash}
    times = {"created_us": token.created_us, "expires_us": token.expires_us, "used_us": token.used_us}
    grants = msgspec.json.encode(token.grants).decode()
    scram = None if token.scram is None else msgspec.json.encode(token.scram).decode()
    return insert(all_tokens).values(grants=grants, scram=scram, grace_until_us=token.grace_until_us, **times, **values)

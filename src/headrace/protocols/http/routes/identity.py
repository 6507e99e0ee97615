"""The identity of the caller: `GET /v1/whoami`."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get

from headrace.core.descriptions import Identity
from headrace.protocols.http.middleware.access import principal_of
from headrace.protocols.http.openapi.document import Docs


class GrantOut(msgspec.Struct):
    """Rights on the topics that a pattern matches, limited to some groups and producer ids; `*` matches all."""

    topics: str
    rights: list[str]
    groups: list[str]
    producers: list[str]


class IdentityOut(msgspec.Struct):
    """The token's name, id and expiry in microseconds (null: never), and its grants."""

    name: str
    token_id: str | None
    expires_us: int | None
    grants: list[GrantOut]

    @classmethod
    def of(cls, identity: Identity) -> IdentityOut:
        """An identity as JSON."""
        grants = [
            GrantOut(grant.pattern, sorted(grant.rights), list(grant.groups), list(grant.producers))
            for grant in identity.grants
        ]
        return cls(identity.name, identity.token_id, identity.expires_us, grants)


_GRANT = GrantOut("orders*", ["publish"], ["*"], ["till-7"])
_EXAMPLE = IdentityOut("till-7", "0a1b2c3d4e5f", 1767323045678901, [_GRANT])


@get(
    "/whoami",
    opt={"operation": "whoami", "docs": Docs(answer=IdentityOut, example=_EXAMPLE)},
    tags=["access"],
    summary="Who am I?",
)
async def whoami(request: Request[Any, Any, Any]) -> IdentityOut:
    """Show the identity and the rights of the caller."""
    return IdentityOut.of(principal_of(request).identity)


HANDLERS = [whoami]

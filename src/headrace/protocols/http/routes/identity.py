"""The identity of the caller: `GET /v1/whoami`."""

from __future__ import annotations

from typing import Any

from litestar import Request, get

from headrace.protocols.http.middleware.access import principal_of
from headrace.protocols.http.openapi.document import Docs
from headrace.wire.descriptions import GrantOut, IdentityOut

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

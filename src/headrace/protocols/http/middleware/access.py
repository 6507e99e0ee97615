"""Who may call what over HTTP: every route says which right it needs, and one that does not is denied.

A route declares `opt={"right": …}`. The guard finds out who calls and, if the path names a topic, checks the right on
it. Routes whose topic is in the body ask `caller_of(request).require(right, topic)` themselves; `PUBLIC` routes are
open to all. Tokens are never logged, and never part of an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from headrace.broker.access import Access
from headrace.core.errors import Forbidden
from headrace.core.rights import Caller, Right
from headrace.protocols.http.requests.raw_paths import unquoted

PUBLIC: Final = "public"
# The route needs a known caller and checks the right itself, since the topic is not in its path.
CHECKED_INSIDE: Final = "checked inside"

_SCHEME: Final = "bearer "


async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Deny what is not allowed, and what no one said anything about."""
    right = handler.opt.get("right")
    if right == PUBLIC:
        return
    access: Access = connection.app.state.access
    caller = await authenticated(access, _token(connection))
    connection.scope["headrace_caller"] = caller  # type: ignore[typeddict-unknown-key]
    if right == CHECKED_INSIDE:
        return
    # As the handler reads it: a right on `a%2Fb` would say nothing about the topic `a/b`.
    topic = unquoted(connection.path_params.get("topic", "*"))
    if not isinstance(right, Right):
        raise Forbidden(caller.name, "call", connection.url.path)
    caller.require(right, topic)


def caller_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Caller:
    """Who the guard let in."""
    caller: Caller = connection.scope["headrace_caller"]  # type: ignore[typeddict-item]
    return caller


def check_again(
    connection: ASGIConnection[Any, Any, Any, Any], right: Right, topic: str
) -> Callable[[], Awaitable[None]]:
    """A check that whoever came in may still be here, for answers that take long: tokens are revoked meanwhile."""
    access: Access = connection.app.state.access
    token = _token(connection)

    async def check() -> None:
        (await authenticated(access, token)).require(right, topic)

    return check


async def authenticated(access: Access, token: str | None) -> Caller:
    """Who comes with a token; the tokens are looked up in a thread, since the catalog may keep that waiting."""
    if access.is_stale:
        await asyncio.to_thread(access.refresh)
    return access.authenticate(token)


def _token(connection: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    header = connection.headers.get("authorization", "")
    return header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else None

"""Access control over HTTP: every route names its operation; a route without one is denied.

A route declares `opt={"operation": …}`, a name of `edge.operations`. The guard authenticates the caller and checks the
right on the topic, group and producer that the path names. Routes that need the body to decide have
`"checked_inside": True`: performing an operation checks its right (`answers`), others call
`principal_of(request).require(operation, topic)`. Tokens are never logged, and never part of an error.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from headrace.core.errors import Forbidden
from headrace.core.names import composed
from headrace.core.reports.clients import IDENTITY_CHARACTERS_MAX, IDENTITY_HEADER, ClientIdentity
from headrace.edge.access import Gate, Lease, Principal
from headrace.edge.operations import OPERATIONS
from headrace.protocols.http.requests.raw_paths import unquoted

_SCHEME: Final = "bearer "
PRINCIPAL: Final = "headrace_principal"
# Set by the connection: the name of the client's verified certificate.
CERTIFICATE_NAME: Final = "headrace_certificate_name"


async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Deny what is not allowed, and every route without an operation."""
    operation = handler.opt.get("operation")
    need = OPERATIONS.get(operation) if operation is not None else None
    if need is not None and need.is_public:
        return
    gate: Gate = connection.app.state.gate
    loop = asyncio.get_running_loop()
    if gate.is_stale:
        # Querying the store is slow and would block the event loop.
        await loop.run_in_executor(None, gate.refresh)
    certificate_name: str | None = connection.scope.get(CERTIFICATE_NAME)  # type: ignore[assignment]
    called = operation or connection.url.path
    principal = gate.admit(_token(connection), _address(connection), called, certificate_name)
    principal.called_by("http", _said(connection))
    if gate.has_uses:
        loop.run_in_executor(None, gate.store_uses)
    connection.scope[PRINCIPAL] = principal  # type: ignore[typeddict-unknown-key]
    if operation is None or need is None:
        raise Forbidden(principal.caller.name, "call", connection.url.path)
    if not handler.opt.get("checked_inside"):
        # As the handler reads them: a right on `a%2Fb` would say nothing about the topic `a/b`.
        named = {name: unquoted(str(value)) for name, value in connection.path_params.items()}
        producer = named.get("producer") or composed(named.get("writer", "")) or None
        principal.require(operation, named.get("topic", "*"), named.get("group"), producer)


def principal_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Principal:
    """The caller that the guard admitted."""
    principal: Principal = connection.scope[PRINCIPAL]  # type: ignore[typeddict-item]
    return principal


def lease_of(request: Request[Any, Any, Any], topic: str, group: str | None = None) -> Lease:
    """A lease on the operation of the request, for answers that take long."""
    return principal_of(request).lease(request.route_handler.opt["operation"], topic, group)


def _address(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    return connection.client.host if connection.client is not None else ""


def _said(connection: ASGIConnection[Any, Any, Any, Any]) -> str | ClientIdentity:
    """What the client says of itself; of others than ours the program that they name."""
    given = connection.headers.get(IDENTITY_HEADER)
    if given is not None:
        return given[:IDENTITY_CHARACTERS_MAX]
    library, _, version = connection.headers.get("user-agent", "").partition(" ")[0].partition("/")
    return ClientIdentity(library=library, version=version)


def _token(connection: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    header = connection.headers.get("authorization", "")
    return header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else None

"""Access control over Flight: the tokens and rights of all protocols, from the `authorization` header of each call.

The middleware only keeps the token: it does not know the address. Every method of the server asks `principal_of` first.
Where client certificates are verified, gRPC says what the caller's is called: by its first subject alternative name,
else by its common name. `http.connection` follows the same rule.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from pyarrow import flight

from headrace.core.errors import InvalidInput
from headrace.core.reports.clients import IDENTITY_CHARACTERS_MAX, IDENTITY_HEADER
from headrace.edge.access import Gate, Principal
from headrace.edge.envelope.stranger_sockets import StrangerSockets
from headrace.protocols.flight.errors import carrying

MIDDLEWARE: Final = "access"
_SCHEME: Final = "bearer "


class TokenOfCall(flight.ServerMiddleware):  # type: ignore[misc]
    """The token of one call."""

    def __init__(
        self,
        gate: Gate,
        token: str | None,
        identity: str,
        verifies_certificates: bool,
        strangers: StrangerSockets | None,
    ) -> None:
        self.gate = gate
        self.strangers = strangers
        self.token = token
        self.identity = identity
        self.verifies_certificates = verifies_certificates


class AccessMiddleware(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Keeps the token of every call."""

    def __init__(self, gate: Gate, verifies_certificates: bool, strangers: StrangerSockets | None) -> None:
        self._gate = gate
        self._strangers = strangers
        self._verifies_certificates = verifies_certificates

    def start_call(self, info: Any, headers: dict[str, list[str | bytes]]) -> TokenOfCall:
        """Called by Flight for every call."""
        if info.method == flight.FlightMethod.GET_SCHEMA:
            # Here, because pyarrow would send a traceback to the client.
            raise carrying(InvalidInput("method", "GetSchema", "it is not supported: all topics have the same columns"))
        identity = "".join(map(_text, _header(headers, IDENTITY_HEADER)[:1]))[:IDENTITY_CHARACTERS_MAX]
        token = _token(_header(headers, "authorization"))
        return TokenOfCall(self._gate, token, identity, self._verifies_certificates, self._strangers)


def principal_of(context: flight.ServerCallContext, operation: str) -> Principal:
    """The principal of this call; raises for unknown callers."""
    kept: TokenOfCall = context.get_middleware(MIDDLEWARE)
    certificate_name = context.peer_identity().decode(errors="replace") if kept.verifies_certificates else None
    principal = kept.gate.admit(kept.token, _address(context.peer()), operation, certificate_name)
    if kept.strangers is not None:
        kept.strangers.know(context.peer())
    principal.called_by("flight", kept.identity)
    if kept.gate.has_uses:
        kept.gate.store_uses()
    return principal


def _address(peer: str | bytes) -> str:
    """The host of `ipv4:127.0.0.1:50000` or `ipv6:%5B::1%5D:50000`."""
    text = _text(peer)
    kind, _, rest = unquote(text).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else text


def _header(headers: dict[str, list[str | bytes]], wanted: str) -> list[str | bytes]:
    return [value for name, values in headers.items() if name.lower() == wanted for value in values]


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _token(given: list[str | bytes]) -> str | None:
    for value in given:
        text = _text(value)
        if text.lower().startswith(_SCHEME):
            return text[len(_SCHEME) :].strip()
    return None

"""Access control over Flight: the tokens and rights of all protocols, from the `authorization` header of each call.

The middleware only keeps the token: it does not know the address. Every method of the server asks `principal_of` first.
An upload holds a thread from its headers on, before its first message has arrived and any method is called. So the
middleware gives it a place among those of its caller, or of strangers, and refuses one that is too many.

Where client certificates are verified, gRPC says what the caller's is called: by its first subject alternative name,
else by its common name. `http.connection` follows the same rule.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from pyarrow import flight

from headrace.core.errors import AccessDenied, InvalidInput
from headrace.core.reports.clients import IDENTITY_CHARACTERS_MAX, IDENTITY_HEADER
from headrace.edge.access import Gate, Principal
from headrace.edge.envelope.watched_port import KnownConnection, WatchedPort
from headrace.edge.limits import Slots
from headrace.protocols.flight.errors import carrying, translated

MIDDLEWARE: Final = "access"
# Where nobody watches the connections.
NO_CONNECTION: Final = KnownConnection("")
# What holds a thread before its first message has arrived.
_UPLOADS: Final = (flight.FlightMethod.DO_PUT, flight.FlightMethod.DO_EXCHANGE)
# Uploads of those whose token says nothing, or whose certificate does.
STRANGERS: Final = "(not signed in)"
_SCHEME: Final = "bearer "


class TokenOfCall(flight.ServerMiddleware):  # type: ignore[misc]
    """The token of one call, and what belongs to its caller: the connection, and the place of an upload."""

    def __init__(
        self,
        gate: Gate,
        token: str | None,
        identity: str,
        verifies_certificates: bool,
        watch: WatchedPort | None,
        place: UploadPlace | None,
    ) -> None:
        self.gate = gate
        self.watch = watch
        self.token = token
        self.identity = identity
        self.verifies_certificates = verifies_certificates
        self.place = place
        self.connection = NO_CONNECTION

    def call_completed(self, exception: BaseException | None) -> None:
        """Called by Flight at the end of every call, also of one whose first message never came."""
        if self.place is not None:
            self.place.leave()


class UploadPlace:
    """The place of an upload among those of its caller."""

    def __init__(self, slots: Slots, owner: str) -> None:
        self._slots = slots
        self._owner = owner

    def move(self, owner: str) -> None:
        """Whose it is is known now; LimitExceeded if that one has too many."""
        if owner != self._owner:
            self._slots.take(owner)
            self._slots.give_back(self._owner)
            self._owner = owner

    def leave(self) -> None:
        """The upload has ended."""
        self._slots.give_back(self._owner)


class AccessMiddleware(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Keeps the token of every call."""

    def __init__(self, gate: Gate, verifies_certificates: bool, watch: WatchedPort | None) -> None:
        self._gate = gate
        self._watch = watch
        self._verifies_certificates = verifies_certificates

    def start_call(self, info: Any, headers: dict[str, list[str | bytes]]) -> TokenOfCall:
        """Called by Flight for every call."""
        if info.method == flight.FlightMethod.GET_SCHEMA:
            # Here, because pyarrow would send a traceback to the client.
            raise carrying(InvalidInput("method", "GetSchema", "it is not supported: all topics have the same columns"))
        identity = "".join(map(_text, _header(headers, IDENTITY_HEADER)[:1]))[:IDENTITY_CHARACTERS_MAX]
        token = _token(_header(headers, "authorization"))
        with translated():
            place = self._place(token) if info.method in _UPLOADS else None
        return TokenOfCall(self._gate, token, identity, self._verifies_certificates, self._watch, place)

    def _place(self, token: str | None) -> UploadPlace:
        slots = self._gate.limits.flight_uploads
        try:
            owner = self._gate.identify(token).name
        except AccessDenied:
            # The method says so, to the audit log too; or it finds a certificate.
            if token is None and self._verifies_certificates:
                # It may come again: places become free, and the certificate says who it is.
                slots.take(STRANGERS)
            elif not slots.try_take(STRANGERS):
                raise
            return UploadPlace(slots, STRANGERS)
        slots.take(owner)
        return UploadPlace(slots, owner)


def principal_of(context: flight.ServerCallContext, operation: str) -> Principal:
    """The principal of this call; raises for unknown callers."""
    kept = kept_of(context)
    certificate_name = context.peer_identity().decode(errors="replace") if kept.verifies_certificates else None
    principal = kept.gate.admit(kept.token, _address(context.peer()), operation, certificate_name)
    if kept.watch is not None:
        kept.connection = kept.watch.know(_text(context.peer()), principal.name)
    principal.called_by("flight", kept.identity)
    if kept.gate.has_uses:
        kept.gate.store_uses()
    return principal


def kept_of(context: flight.ServerCallContext) -> TokenOfCall:
    """What the middleware keeps of this call."""
    kept: TokenOfCall = context.get_middleware(MIDDLEWARE)
    return kept


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

"""Who calls over Flight: the same tokens and rights as everywhere, from the `authorization` header of each call."""

from __future__ import annotations

from typing import Any, Final

from pyarrow import flight

from headrace.broker.access import Access
from headrace.core.errors import HeadraceError
from headrace.core.rights import Caller
from headrace.protocols.flight.errors import carrying

MIDDLEWARE: Final = "access"
_SCHEME: Final = "bearer "


class CallerOfCall(flight.ServerMiddleware):  # type: ignore[misc]
    """Who makes one call."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller


class AccessMiddleware(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Finds out who calls before anything else is done; unknown callers get no further."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def start_call(self, info: Any, headers: dict[str, list[str | bytes]]) -> CallerOfCall:
        """Called by Flight for every call."""
        given = [value for name, values in headers.items() if name.lower() == "authorization" for value in values]
        try:
            return CallerOfCall(self._access.authenticate(_token(given)))
        except HeadraceError as error:
            raise carrying(error) from None


def caller_of(context: flight.ServerCallContext) -> Caller:
    """Who makes this call."""
    middleware: CallerOfCall = context.get_middleware(MIDDLEWARE)
    return middleware.caller


def _token(given: list[str | bytes]) -> str | None:
    for value in given:
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        if text.lower().startswith(_SCHEME):
            return text[len(_SCHEME) :].strip()
    return None

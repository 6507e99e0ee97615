"""Content negotiation: the types of bodies and answers.

Answers are JSON unless the caller prefers Arrow; a caller that accepts neither gets 406. A body must have a
Content-Type, because a web page can send one without; unsupported types get 415, before anything is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler

from headrace.protocols.http.formats import ARROW, JSON

EVENTS: Final = "text/event-stream"

_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


class NotAcceptable(HTTPException):
    """The answer has no type that the caller accepts."""

    status_code = 406


class UnsupportedMediaType(HTTPException):
    """The type of the body is not supported here."""

    status_code = 415


async def check_body_type(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A guard: a route accepts JSON, or the types that its `opt["bodies"]` lists."""
    # A coroutine although it awaits nothing: the framework would run a plain function in a thread.
    if connection.scope["method"] not in _WITH_BODY:  # type: ignore[typeddict-item]
        return
    if "content-type" not in connection.headers and not _has_body(connection):
        return
    given = body_type(connection)
    taken: Sequence[str] = handler.opt.get("bodies", (JSON,))
    if given not in taken:
        kind = f"of type {given[:100]!a}" if given else "without Content-Type"
        raise UnsupportedMediaType(f"a body {kind} is not supported here: send {' or '.join(taken)}")


def _has_body(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    return connection.headers.get("content-length", "0") != "0" or "transfer-encoding" in connection.headers


def body_type(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """The type of a body without its parameters; empty if there is none."""
    return connection.headers.get("content-type", "").partition(";")[0].strip().lower()


def answer_type(request: Request[Any, Any, Any], *offered: str) -> str:
    """The offered type that the caller prefers; the first one of equal preference."""
    accept = request.headers.get("accept", "").strip()
    if not accept:
        return offered[0]
    ranges = [_parsed(part) for part in accept.split(",") if part.strip()]
    best, liking = max(((kind, _liking(kind, ranges)) for kind in offered), key=lambda rated: rated[1])
    if liking <= 0:
        raise NotAcceptable(
            f"the answer is {' or '.join(offered)}, which Accept {accept[:100]!a} excludes: accept one of them"
        )
    return best


def wants_arrow(request: Request[Any, Any, Any]) -> bool:
    """Whether the caller prefers Arrow to JSON."""
    return answer_type(request, JSON, ARROW) == ARROW


def _liking(kind: str, ranges: Sequence[tuple[str, float]]) -> float:
    """The quality of a type: the most specific matching range decides."""
    family = f"{kind.partition('/')[0]}/*"
    for wanted in (kind, family, "*/*"):
        for given, quality in ranges:
            if given == wanted:
                return quality
    return 0.0


def _parsed(part: str) -> tuple[str, float]:
    kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return kind, min(1.0, max(0.0, float(value)))
            except ValueError:
                return kind, 0.0
    return kind, 1.0

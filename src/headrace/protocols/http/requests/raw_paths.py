"""Names in paths: percent-encoded, so that a topic may be called `a/b`.

The path in the ASGI scope is already decoded, so a slash in a name could not be distinguished from a separator.
Therefore routing under /v1 uses the path as it was sent, and handlers decode its parts.
"""

from __future__ import annotations

from urllib.parse import unquote

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from headrace.core.errors import InvalidInput


def unquoted(part: str) -> str:
    """A part of a path, decoded."""
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput("path", repr(part)[:100], "it must be percent-encoded UTF-8") from None


def with_raw_paths(app: ASGIApp, prefix: str) -> ASGIApp:
    """The application, routing by the paths as they were sent where they begin with a prefix."""

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and scope["path"].startswith(prefix):
            # Bytes that are not UTF-8 stay recognisable: no name may contain them.
            scope["path"] = scope["raw_path"].decode("utf-8", "surrogateescape")
        await app(scope, receive, send)

    return routed

"""Security headers on every answer.

Browsers must not guess another content type, show an answer in a frame, or load anything from it; the pages of this
server may run their own script and style, identified by hashes. With TLS, HSTS is set.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

Headers = list[tuple[bytes, bytes]]

_CSP: Final = b"content-security-policy"
_PLAIN_POLICY: Final = b"default-src 'none'; frame-ancestors 'none'"
_COMMON: Final[Headers] = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]
_HSTS: Final = (b"strict-transport-security", b"max-age=31536000")
_INLINE: Final = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


def security_headers(is_tls: bool, policy: bytes = _PLAIN_POLICY) -> Headers:
    """The headers of an answer."""
    return [*_COMMON, (_CSP, policy), *([_HSTS] if is_tls else [])]


def policy_of(page: bytes) -> bytes:
    """The policy of a page: it may run its inline code and call this server."""
    hashes: dict[bytes, list[bytes]] = {b"script": [], b"style": []}
    for kind, text in _INLINE.findall(page):
        digest = base64.b64encode(hashlib.sha256(text).digest())
        hashes[kind].append(b"'sha256-%s'" % digest)
    script, style = (b" ".join(hashes[kind]) or b"'none'" for kind in (b"script", b"style"))
    return (
        b"default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'; script-src %s; style-src %s" % (script, style)
    )


def with_headers(app: ASGIApp, pages: Iterable[tuple[str, bytes]]) -> ASGIApp:
    """The application, with these headers on every answer; `pages` maps paths to policies."""
    plain = {is_tls: security_headers(is_tls) for is_tls in (False, True)}
    of_pages = {(path, is_tls): security_headers(is_tls, policy) for path, policy in pages for is_tls in (False, True)}

    async def protected(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        is_tls = scope.get("scheme") == "https"
        added = of_pages.get((scope["path"], is_tls)) or plain[is_tls]

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await app(scope, receive, send_protected)

    return protected

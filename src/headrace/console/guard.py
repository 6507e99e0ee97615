"""Protects the console from other web pages, as an ASGI layer around all of it.

Host: a console on loopback answers only to loopback names and `allowed_hosts`, so that a name which its owner points
here (DNS rebinding) reaches nothing. Origin: a request that changes something, and every WebSocket, must come from a
page of the console itself; the session cookie is SameSite=Strict besides. A WebSocket needs a session.

Every answer has a content security policy. Scripts are files of the console, or carry the nonce of their page, so
markup that found its way into a page would not run. `'unsafe-eval'` is needed: Vue compiles the templates of NiceGUI in
the browser, and NiceGUI sends calls of components as code. Styles may be inline: Quasar sets them on elements. Nothing
may be loaded from another host.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Collection
from typing import Any, Final

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_SOCKETS: Final = "/_nicegui_ws"
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'unsafe-eval' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; manifest-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Guard:
    """The application, refusing what does not come from its own pages."""

    def __init__(
        self,
        app: ASGIApp,
        has_session: Callable[[HTTPConnection], bool],
        allowed_hosts: Collection[str],
        is_loopback: bool,
        is_tls: bool,
    ) -> None:
        self._app = app
        self._has_session = has_session
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)
        self._is_loopback = is_loopback
        self._is_tls = is_tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        refusal = self._refusal(connection)
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)
            return
        if scope["type"] == "http":
            send = self._protected(send)
        await self._app(scope, receive, send)

    def _refusal(self, connection: HTTPConnection) -> str | None:
        hosts = connection.headers.getlist("host")
        if len(hosts) != 1 or not self._is_known(hosts[0]):
            return (
                f"Host is {', '.join(hosts)[:100]!a}: this console answers to localhost and to the names that "
                "--allow-host gives"
            )
        is_socket = connection.scope["type"] == "websocket" or connection.scope["path"].startswith(_SOCKETS)
        if not is_socket and connection.scope["method"] in _SAFE_METHODS:
            return None
        origin = connection.headers.get("origin")
        site = connection.headers.get("sec-fetch-site", "same-origin")
        is_own = origin is not None and origin.partition("://")[2].lower() == hosts[0].lower()
        if not (is_own or (origin is None and is_socket and site == "same-origin")):
            return f"the request was sent by a page of {(origin or 'another site')[:100]!a}, not by the console"
        if is_socket and not self._has_session(connection):
            return "not signed in"
        return None

    def _is_known(self, header: str) -> bool:
        text = header.lower()
        host = text.rpartition(":")[0] if text.rpartition(":")[2].isdigit() and not text.endswith("]") else text
        if text in self._allowed_hosts or host in self._allowed_hosts:
            return True
        if not self._is_loopback:
            # Others can reach it, so it needs a token, and a page of another name has none.
            return not self._allowed_hosts or _is_loopback_name(host)
        return _is_loopback_name(host)

    def _protected(self, send: Send) -> Send:
        """Add the headers, and the nonce to the scripts of a page."""
        nonce = secrets.token_urlsafe(16)
        added = [*_HEADERS, (b"content-security-policy", _POLICY.format(nonce=nonce).encode())]
        if self._is_tls:
            added.append((b"strict-transport-security", b"max-age=31536000"))
        start: Message | None = None
        body = bytearray()

        async def send_protected(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                headers = [*message["headers"], *added]
                message = {**message, "headers": headers}
                if dict(headers).get(b"content-type", b"").startswith(b"text/html"):
                    start = message
                    return
            elif start is not None and message["type"] == "http.response.body":
                body.extend(message.get("body", b""))
                if message.get("more_body"):
                    return
                # Text of messages cannot contain this: NiceGUI escapes every `<` of its data.
                whole = bytes(body).replace(b"<script", b'<script nonce="%s"' % nonce.encode())
                kept = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
                await send({**start, "headers": [*kept, (b"content-length", b"%d" % len(whole))]})
                message = {"type": "http.response.body", "body": whole, "more_body": False}
                start = None
            await send(message)

        return send_protected


def _is_loopback_name(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


async def _refuse(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        closing: dict[str, Any] = {"type": "websocket.close", "code": 1008, "reason": reason[:100]}
        await send(closing)
        return
    await PlainTextResponse(reason, 403)(scope, receive, send)

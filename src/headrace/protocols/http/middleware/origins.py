"""Protects the server from web pages: a page must not use it through the browser of someone who can reach it.

A browser sends requests for any page, and on loopback no token is needed. Three headers identify such requests. A name
that its owner made to point here (DNS rebinding) is in `Host`: a server that needs no token answers only to loopback
names, its own address and `allowed_hosts`. Where tokens are needed a page has none, so any name is accepted, unless
`allowed_hosts` is set. `Origin` and `Sec-Fetch-Site` show that the request is from a page of another origin: it gets
403, unless `allowed_origins` lists it; then CORS headers let the page read the answer. Links to the pages of this
server may be followed from anywhere. Programs send none of these headers and are not affected.

The port in `Host` does not matter for loopback: an attacker who rebinds a name chooses the port too, and tunnels
change it.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from headrace.broker.access import Access
from headrace.core.errors import HeadraceError
from headrace.protocols.http.errors import Problem
from headrace.protocols.http.middleware.refusals import send_refusal
from headrace.protocols.http.routes import queue_api
from headrace.protocols.http.settings import HttpSettings

_FOREIGN: Final = frozenset({b"cross-site", b"same-site"})
# What a page can send without asking the server first, as HTML forms do.
_SIMPLE_TYPES: Final = frozenset({b"", b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"})
_READING: Final = frozenset({"GET", "HEAD"})
_ALLOWED_METHODS: Final = b"GET, POST, PUT, PATCH, DELETE"
_ALLOWED_HEADERS: Final = b"authorization, content-type, accept, last-event-id"
_PREFLIGHT_SECONDS: Final = 600


def with_origin_checks(app: ASGIApp, access: Access, settings: HttpSettings, pages: Collection[str]) -> ASGIApp:
    """The application, rejecting requests of pages of other origins; links to `pages` are allowed."""
    origins = frozenset(origin.lower().encode() for origin in settings.allowed_origins)

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        hosts, origin, site, content_type = _telling(scope)
        problem = await _host_problem(scope, hosts, access, settings)
        if problem is None and (origin is not None or site is not None):
            is_listed = origin is not None and origin.lower() in origins
            if not is_listed:
                problem = _origin_problem(scope, hosts, origin, site, pages)
            elif scope["method"] == "OPTIONS":
                await _answer_preflight(send, origin or b"")
                return
            else:
                send = _shown_to(send, origin or b"")
            if problem is None and origin is not None:
                problem = _simple_problem(scope, content_type)
        if problem is not None:
            await send_refusal(send, scope["path"], problem)
            return
        await app(scope, receive, send)

    return checked


def _telling(scope: HTTPScope) -> tuple[list[bytes], bytes | None, bytes | None, bytes]:
    """All hosts, the origin, what the browser says of it, and the content type."""
    hosts, origin, site, content_type = [], None, None, b""
    for name, value in scope["headers"]:
        if name == b"host":
            hosts.append(value)
        elif name == b"origin":
            origin = value
        elif name == b"sec-fetch-site":
            site = value
        elif name == b"content-type":
            content_type = value
    return hosts, origin, site, content_type


# Host


async def _host_problem(scope: HTTPScope, hosts: list[bytes], access: Access, settings: HttpSettings) -> Problem | None:
    if len(hosts) != 1:
        if not hosts and scope["http_version"] == "1.0":
            return None
        detail = f"a request must have one Host header, this one has {len(hosts)}"
        return Problem("about:blank", "Bad request", 400, detail, "bad_request", False)
    server = scope.get("server")
    if _is_own(hosts[0], server[0] if server else "", settings.allowed_hosts):
        return None
    if not settings.allowed_hosts and not await _is_open(access):
        return None
    detail = (
        f"Host is {hosts[0][:100].decode('latin-1')!a}: this server answers to localhost, to its own address and to "
        "the names in the setting allowed_hosts"
    )
    return Problem("about:blank", "Host not allowed", 403, detail, "host_not_allowed", False)


@lru_cache(maxsize=1_024)
def _is_own(header: bytes, address: str, allowed: tuple[str, ...]) -> bool:
    """Whether a Host header names this server."""
    text = header.decode("latin-1").strip().lower()
    host = _without_port(text).rstrip(".")
    if text in allowed or host in allowed or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        given = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return given.is_loopback or str(given) == address.partition("%")[0]


def _without_port(text: str) -> str:
    host, separator, port = text.rpartition(":")
    return host if separator and port.isdigit() and (":" not in host or host.endswith("]")) else text


async def _is_open(access: Access) -> bool:
    """Whether no token is needed; assumed if it cannot be determined."""
    try:
        return await asyncio.to_thread(access.is_open)
    except HeadraceError:
        return True


# Origin


def _origin_problem(
    scope: HTTPScope, hosts: list[bytes], origin: bytes | None, site: bytes | None, pages: Collection[str]
) -> Problem | None:
    """Why a request of a page is rejected; None for a page of this server, or no page."""
    if origin is not None:
        scheme, _, authority = origin.partition(b"://")
        if scheme in (b"http", b"https") and hosts and authority.lower() == hosts[0].lower():
            return None
    elif site not in _FOREIGN or (scope["method"] in _READING and scope["path"] in pages):
        return None
    whose = "another site" if origin is None else f"origin {origin[:100].decode('latin-1')!a}"
    detail = f"the request was sent by a web page of {whose}: list its origin in allowed_origins to allow it"
    return Problem("about:blank", "Origin not allowed", 403, detail, "origin_not_allowed", False)


def _simple_problem(scope: HTTPScope, content_type: bytes) -> Problem | None:
    """Why the queue API, which accepts any content type of programs, rejects this one of a page."""
    given = content_type.partition(b";")[0].strip().lower()
    if scope["method"] in _READING or given not in _SIMPLE_TYPES or not queue_api.is_path(scope["path"]):
        return None
    detail = f"a web page sent a body of type {given.decode('latin-1')!a}: send application/json"
    return Problem("about:blank", "Unsupported Media Type", 415, detail, "unsupported_media_type", False)


async def _answer_preflight(send: Send, origin: bytes) -> None:
    headers = [
        (b"access-control-allow-methods", _ALLOWED_METHODS),
        (b"access-control-allow-headers", _ALLOWED_HEADERS),
        (b"access-control-max-age", b"%d" % _PREFLIGHT_SECONDS),
    ]
    send = _shown_to(send, origin)
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _shown_to(send: Send, origin: bytes) -> Send:
    """Add the CORS headers that let an origin read the answer."""
    added = [(b"access-control-allow-origin", origin), (b"vary", b"origin")]

    async def send_shown(message: Message) -> Any:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *added]
        await send(message)

    return send_shown

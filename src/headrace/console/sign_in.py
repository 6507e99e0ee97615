"""Signing in and out: plain HTML without scripts, so that the cookie is set by an answer and pages cannot read it.

Wrong tokens are limited by address (`attempts`), and how many tokens are checked at the same time by a semaphore, since
each check connects to the server.
"""

from __future__ import annotations

import asyncio
import html
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.requests import HTTPConnection

from headrace.console.attempts import Attempts
from headrace.console.monitor.poller import Poller
from headrace.console.sessions import IDLE_SECONDS, PAGE_SECONDS, PAGES_MAX, Sessions, SignedIn
from headrace.core.errors import AccessDenied, HeadraceError

PATH: Final = "/sign-in"
_BODY_BYTES_MAX: Final = 16 << 10
_TOO_MANY: Final = f"this session has {PAGES_MAX} pages open: close some, and try again in a minute"
_UNREACHABLE: Final = "The server cannot be reached"
# Tokens that are checked at the same time.
_CHECKS_MAX: Final = 16

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Sign in · Headrace</title>
<link rel="icon" href="/static/mark.svg">
<link rel="stylesheet" href="/static/console.css">
</head>
<body class="hr-sign-in">
<main>
<img src="/static/mark.svg" alt="" width="40" height="40">
<h1>Headrace</h1>
<p class="hr-muted">{url}</p>
{problem}
<form method="post" action="/sign-in">
<input type="hidden" name="next" value="{next}">
<label for="token">Access token</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required placeholder="hr_…"
  spellcheck="false" maxlength="500">
<button type="submit">Sign in</button>
</form>
<p class="hr-muted">No token yet? Whoever runs the server creates one:</p>
<pre>headrace token create NAME --read '*'</pre>
</main>
</body>
</html>
"""
# A link from another site is opened without the cookie, since it is SameSite=Strict; the page then opens itself.
_AGAIN: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0"><title>Headrace</title></head>
<body></body></html>
"""


@dataclass(frozen=True)
class Refused:
    """Why somebody was not signed in, and after how many seconds trying again may help."""

    problem: str
    status: int
    retry_seconds: int = 0


class SignIn:
    """The cookie of a console, and its two routes."""

    def __init__(self, sessions: Sessions, poller: Poller, url: str, port: int, is_tls: bool) -> None:
        self._sessions = sessions
        self._poller = poller
        self._url = url
        self._is_tls = is_tls
        # Browsers share cookies between the ports of a host.
        self._cookie = f"headrace_console_{port}"
        self._attempts = Attempts()
        self._checks = asyncio.Semaphore(_CHECKS_MAX)

    def session_of(self, connection: HTTPConnection) -> SignedIn | None:
        """The session of a request."""
        return self._sessions.find(connection.cookies.get(self._cookie))

    async def admit(self, request: Request) -> SignedIn | Response:
        """The session of a request for a page, if it may open one more, or where the browser goes to get one."""
        session = self.session_of(request)
        if session is not None:
            return session if session.has_room else PlainTextResponse(_TOO_MANY, 503)
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return HTMLResponse(_AGAIN)
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                session = await self._sessions.sign_in_without_token()
        except (HeadraceError, TimeoutError) as error:
            problem = "The server does not answer." if isinstance(error, TimeoutError) else f"{_UNREACHABLE}: {error}"
            return self._form(here, problem, 503)
        if session is None:
            return RedirectResponse(f"{PATH}?next={quote(here, safe='')}", 303)
        return self._entered(session, here)

    def register(self, app: FastAPI) -> None:
        """Add the routes."""

        @app.get(PATH, include_in_schema=False)
        async def form(next: str = "/") -> Response:
            return self._form(next, "")

        @app.post(PATH, include_in_schema=False)
        async def sign_in(request: Request) -> Response:
            fields = await _fields(request)
            place, token = fields.get("next", "/"), fields.get("token", "").strip()
            if not token:
                return self._form(place, "Enter a token.", 400)
            entered = await self._check(token, "" if request.client is None else request.client.host)
            if isinstance(entered, Refused):
                return self._form(place, entered.problem, entered.status, entered.retry_seconds)
            before = self.session_of(request)
            if before is not None:
                self._sessions.sign_out(before)
            self._poller.wake()
            return self._entered(entered, place)

        @app.post("/sign-out", include_in_schema=False)
        async def sign_out(request: Request) -> Response:
            session = self.session_of(request)
            if session is not None:
                self._sessions.sign_out(session)
            answer = RedirectResponse(PATH, 303)
            answer.delete_cookie(self._cookie)
            return answer

    async def _check(self, token: str, address: str) -> SignedIn | Refused:
        """A session for a token, unless the server refuses it or the address tried too often."""
        wait_seconds = self._attempts.take(address, time.monotonic())
        if wait_seconds:
            problem = f"Too many wrong tokens from your address ({address}). Try again in {wait_seconds} seconds."
            return Refused(problem, 429, wait_seconds)
        try:
            async with self._checks:
                session = await self._sessions.sign_in(token)
        except AccessDenied as error:
            return Refused(f"The server refused this token: {error}", 401)
        except (HeadraceError, ValueError) as error:
            self._attempts.give_back(address)
            return Refused(f"{_UNREACHABLE}: {error}", 503)
        self._attempts.give_back(address)
        return session

    def _entered(self, session: SignedIn, place: str) -> Response:
        answer = RedirectResponse(_own_path(place), 303)
        answer.set_cookie(
            self._cookie, session.id, max_age=int(IDLE_SECONDS), httponly=True, samesite="strict", secure=self._is_tls
        )
        return answer

    def _form(self, place: str, problem: str, status: int = 200, retry_seconds: int = 0) -> Response:
        shown = f'<p class="hr-problem" role="alert">{html.escape(problem)}</p>' if problem else ""
        page = _PAGE.format(url=html.escape(self._url), problem=shown, next=html.escape(_own_path(place)))
        retry = {"Retry-After": str(retry_seconds)} if retry_seconds else {}
        return HTMLResponse(page, status, {"Cache-Control": "no-store", **retry})


def _own_path(place: str) -> str:
    """A path of this console, `/` in place of an address elsewhere."""
    if not place.startswith("/") or place.startswith(("//", "/\\")):
        return "/"
    try:
        parts = urlsplit(place)
    except ValueError:
        return "/"
    return place if not parts.scheme and not parts.netloc and parts.path != PATH else "/"


async def _fields(request: Request) -> dict[str, str]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES_MAX:
            return {}
    parsed = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[0] for name, values in parsed.items()}

"""Limits on the requests under way: how many they are, and how long each may take.

Too many are refused at once, with 503. A request has so many seconds until its answer begins; long polls ask for the
seconds they wait on top. Once it has begun, every part of it must be taken by the client in time. Large answers go out
in parts, so that no more than one of them waits for a client that does not read. What is given up before the answer
began is answered with 408 if the body was not here yet, and with 503 otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec
from litestar import Request
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPResponseBodyEvent, HTTPScope, Message, Receive, Scope, Send

from headrace.core.errors import Overloaded
from headrace.protocols.http.errors import MEDIA_TYPE, RETRY_AFTER_SECONDS, Problem, problem_of
from headrace.protocols.http.settings import HttpSettings

PART_BYTES: Final = 256 << 10

logger = logging.getLogger(__name__)


# The body of a failure on a path that has a form of its own, and why it failed; none where problems are answered.
OwnForm = Callable[[str, str], bytes | None]


def _no_form(path: str, why: str) -> None:
    return None


def with_limits(app: ASGIApp, settings: HttpSettings, own_form: OwnForm = _no_form) -> ASGIApp:
    """The application, refusing what is too much and giving up what takes too long."""
    under_way = 0

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal under_way
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
        elif under_way >= settings.connections_max:
            problem = problem_of(Overloaded("the server", settings.connections_max, 0.0))
            await _send_problem(send, problem, own_form(scope["path"], problem.detail))
        else:
            under_way += 1
            try:
                await _Exchange(scope, send, settings, own_form).run(app, receive)
            finally:
                under_way -= 1

    return limited


def allow_seconds(request: Request[Any, Any, Any], seconds: float) -> None:
    """Let a request wait so much longer for its answer."""
    exchange: _Exchange | None = request.scope.get("headrace_exchange")  # type: ignore[assignment]
    if exchange is not None and seconds > 0:
        exchange.extend(seconds)


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: HTTPScope, send: Send, settings: HttpSettings, own_form: OwnForm) -> None:
        self._own_form = own_form
        self._scope = scope
        self._send = send
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(settings.request_seconds_max)
        self._awaits_body = False
        self._has_begun = False

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        async def receive_part() -> Any:
            self._awaits_body = True
            message = await receive()
            self._awaits_body = bool(message.get("more_body", False))
            return message

        self._scope["headrace_exchange"] = self  # type: ignore[typeddict-unknown-key]
        try:
            async with self._timeout:
                await app(self._scope, receive_part, self._send_in_time)
        except TimeoutError:
            if not self._timeout.expired():
                raise
            await self._give_up()

    def extend(self, seconds: float) -> None:
        self._timeout.reschedule((self._timeout.when() or self._loop.time()) + seconds)

    async def _send_in_time(self, message: Message) -> None:
        self._has_begun = True
        for part in _parts(message):
            self._timeout.reschedule(self._loop.time() + self._settings.send_seconds_max)
            await self._send(part)
        # Whoever goes on sending later, as subscriptions do, may take as long as it likes for the next part.
        self._timeout.reschedule(None)

    async def _give_up(self) -> None:
        if self._has_begun:
            logger.info("an answer to %s %s was not read in time", self._scope["method"], self._scope["path"])
            return
        problem = self._problem()
        await _send_problem(self._send, problem, self._own_form(self._scope["path"], problem.detail))

    def _problem(self) -> Problem:
        seconds = self._settings.request_seconds_max
        if self._awaits_body:
            detail = f"the body was not here after {seconds:g} seconds: send it faster, or less"
            return Problem("about:blank", "The body took too long", 408, detail, "body_too_slow", True)
        detail = f"there was no answer within {seconds:g} seconds: it is not known what became of the request"
        return Problem("about:blank", "The request took too long", 503, detail, "request_timeout", True)


async def _send_problem(send: Send, problem: Problem, own_body: bytes | None) -> None:
    """Answer in place of the application, with the path's own kind of body if it has one."""
    body = msgspec.json.encode(problem) if own_body is None else own_body
    media_type = MEDIA_TYPE if own_body is None else "application/json"
    headers = {"content-type": media_type, "content-length": len(body), "retry-after": RETRY_AFTER_SECONDS}
    encoded = [(name.encode(), str(value).encode()) for name, value in headers.items()]
    # What is left of the body must not be taken for the next request.
    encoded.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": problem.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _parts(message: Message) -> list[Message]:
    """A large part of a body as several."""
    if message["type"] != "http.response.body" or len(message["body"]) <= PART_BYTES:
        return [message]
    body, goes_on = message["body"], message["more_body"]
    return [_part(body, begin, goes_on) for begin in range(0, len(body), PART_BYTES)]


def _part(body: bytes, begin: int, goes_on: bool) -> HTTPResponseBodyEvent:
    end = begin + PART_BYTES
    return {"type": "http.response.body", "body": body[begin:end], "more_body": goes_on or end < len(body)}

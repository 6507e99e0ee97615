"""Limits on running requests: how many there may be, and how long each may take.

Too many are refused at once, with 503. A request has a timeout until its answer starts; long polls add the seconds they
wait. After that, the client must read every part of it in time. Large answers are sent in parts, so that at most one
part waits for a client that does not read. Bodies are read once there is space for them (`byte_budget`), and if the
limits of their sender allow it (`edge.limits`). A request that times out before its answer started is answered with 408
if the body had not arrived, with 503 if it changes nothing, and otherwise with 504: whether it was carried out is
unknown, so the answer does not suggest a retry. Unexpected errors of the application end here, as an answer without
details.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, Final, cast

from litestar import Request
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPResponseBodyEvent, HTTPScope, Message, Receive, Scope, Send

from headrace.core.errors import Overloaded
from headrace.edge.access import Principal
from headrace.edge.envelope.byte_budget import ByteBudget
from headrace.protocols.http.errors import Problem, internal_problem, problem_of
from headrace.protocols.http.middleware.access import PRINCIPAL
from headrace.protocols.http.middleware.refusals import send_refusal
from headrace.protocols.http.routes import queue_api
from headrace.protocols.http.settings import HttpSettings

PART_BYTES: Final = 64 << 10

# Operations whose bodies are messages.
_PUBLISHING: Final = frozenset({"publish", "produce"})
_CHANGING_NOTHING: Final = frozenset({"GET", "HEAD", "OPTIONS"})

logger = logging.getLogger(__name__)


def with_limits(app: ASGIApp, settings: HttpSettings) -> ASGIApp:
    """The application, with limits on the number and duration of requests."""
    under_way = 0
    budget = ByteBudget(settings.requests_bytes_max, settings.room_seconds_max, "limits.requests_bytes_max")

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal under_way
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
        elif under_way >= settings.connections_max:
            await send_refusal(send, scope["path"], too_many_requests(settings))
        else:
            under_way += 1
            try:
                await _Exchange(scope, send, settings, budget).run(app, receive)
            finally:
                under_way -= 1

    return limited


def too_many_requests(settings: HttpSettings) -> Problem:
    """The answer to one request too many."""
    return problem_of(Overloaded("the server (limits.connections_max)", settings.connections_max, 0.0))


def allow_seconds(request: Request[Any, Any, Any], seconds: float) -> None:
    """Give a request more time for its answer."""
    exchange: _Exchange | None = request.scope.get("headrace_exchange")  # type: ignore[assignment]
    if exchange is not None and seconds > 0:
        exchange.extend(seconds)


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: HTTPScope, send: Send, settings: HttpSettings, budget: ByteBudget) -> None:
        self._scope = scope
        self._send = send
        self._settings = settings
        self._budget = budget
        # Budget taken for the body; its size is unknown until all of it has arrived.
        self._taken_bytes = 0
        self._is_unsized = False
        # Who sends it, once the guard has let them in, and the room taken of what they may have.
        self._sender: Principal | None = None
        self._shared_bytes = 0
        self._is_publishing = False
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(settings.request_seconds_max)
        self._awaits_body = False
        self._has_begun = False

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        is_first = True

        async def receive_part() -> Any:
            nonlocal is_first
            if is_first:
                is_first = False
                self._know_sender()
                await self._take_room()
            self._awaits_body = True
            message = await receive()
            self._awaits_body = bool(message.get("more_body", False))
            size = len(cast(bytes, message.get("body", b"")))
            if self._is_unsized:
                self._add_room(size)
            if self._sender is not None and self._is_publishing:
                self._sender.limits.publish_bytes.spend(self._sender.name, size)
            return message

        self._scope["headrace_exchange"] = self  # type: ignore[typeddict-unknown-key]
        try:
            async with self._timeout:
                await app(self._scope, receive_part, self._send_in_time)
        except TimeoutError:
            if not self._timeout.expired():
                raise
            await self._give_up()
        except Exception as error:
            logger.error("%s %s failed", self._scope["method"], self._scope["path"], exc_info=error)
            if self._has_begun:
                # A partial answer must not look complete: the server closes the connection.
                raise
            await send_refusal(self._send, self._scope["path"], internal_problem())
        finally:
            if self._taken_bytes:
                self._budget.give_back(self._taken_bytes)
            if self._sender is not None and self._shared_bytes:
                self._sender.limits.bodies.give_back(self._sender.name, self._shared_bytes)

    def _know_sender(self) -> None:
        """Refuse a caller over its publish rate before any of the body is read."""
        self._sender = self._scope.get(PRINCIPAL)  # type: ignore[assignment]
        handler = self._scope.get("route_handler")
        self._is_publishing = handler is not None and handler.opt.get("operation") in _PUBLISHING
        if self._sender is not None and self._is_publishing:
            self._sender.limits.publish_bytes.check(self._sender.name)

    def _take_share(self, size: int) -> None:
        if self._sender is not None and size:
            self._sender.limits.bodies.take(self._sender.name, size, self._shared_bytes)
            self._shared_bytes += size

    async def _take_room(self) -> None:
        """Take budget for the whole body before it is read; one that is too large is rejected anyway."""
        for name, value in self._scope["headers"]:
            if name == b"content-length":
                size = int(value)
                if 0 < size <= self._settings.request_bytes_max:
                    self._take_share(size)
                    await self._budget.take(size)
                    self._taken_bytes = size
                return
            if name == b"transfer-encoding":
                self._is_unsized = True
                return

    def _add_room(self, size: int) -> None:
        if self._taken_bytes + size <= self._settings.request_bytes_max:
            self._take_share(size)
            self._budget.add(size)
            self._taken_bytes += size

    def extend(self, seconds: float) -> None:
        self._timeout.reschedule((self._timeout.when() or self._loop.time()) + seconds)

    async def _send_in_time(self, message: Message) -> None:
        self._has_begun = True
        if message["type"] == "http.response.start":
            # The first part of the body follows at once, and rescheduling is not free.
            await self._send(message)
            return
        for part in _parts(message):
            self._timeout.reschedule(self._loop.time() + self._settings.send_seconds_max)
            await self._send(part)
        if message.get("more_body"):
            # A handler that sends later parts, such as a subscription, may take any time for the next one.
            self._timeout.reschedule(None)

    async def _give_up(self) -> None:
        if self._has_begun:
            logger.info(
                "the client did not read the answer to %s %s in time", self._scope["method"], self._scope["path"]
            )
            return
        await send_refusal(self._send, self._scope["path"], self._problem())

    def _problem(self) -> Problem:
        seconds = self._settings.request_seconds_max
        if self._awaits_body:
            detail = (
                f"the body did not arrive within {seconds:g} seconds, nothing was done: send it faster, or send less"
            )
            return Problem("about:blank", "The body took too long", 408, detail, "body_too_slow", True)
        title = "The request took too long"
        if self._changes_nothing:
            detail = f"there was no answer within {seconds:g} seconds, nothing was changed: try again later"
            return Problem("about:blank", title, 503, detail, "request_timeout", True)
        detail = (
            f"there was no answer within {seconds:g} seconds: the request may or may not be carried out, so "
            "check before you repeat it; messages with a producer id and seqno, or a commit key, are not written twice"
        )
        return Problem("about:blank", title, 504, detail, "request_timeout", False)

    @property
    def _changes_nothing(self) -> bool:
        # Consuming over the queue API moves the position, although it is a GET.
        return self._scope["method"] in _CHANGING_NOTHING and not queue_api.is_path(self._scope["path"])


def _parts(message: Message) -> Iterator[Message]:
    """Split a large part of a body into several, lazily."""
    if message["type"] != "http.response.body" or len(message["body"]) <= PART_BYTES:
        yield message
        return
    body, goes_on = message["body"], message["more_body"]
    for begin in range(0, len(body), PART_BYTES):
        yield _part(body, begin, goes_on)


def _part(body: bytes, begin: int, goes_on: bool) -> HTTPResponseBodyEvent:
    end = begin + PART_BYTES
    return {"type": "http.response.body", "body": body[begin:end], "more_body": goes_on or end < len(body)}

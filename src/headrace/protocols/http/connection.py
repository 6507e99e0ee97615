"""Limits on the head of a request: its size and how long it may take to arrive.

Uvicorn takes headers without end and waits for them without end, from anyone, before anything is authenticated. Here
request line and headers have a size, a number and a time, and so has whatever else the parser swallows without giving
it on (trailers, chunk extensions). What is too much is answered with 431, too slow with 408, malformed with 400, and
the connection is closed once the client has seen that. If another answer is under way on the connection, it is closed
at once instead: two answers must not be mixed. Too many connections are refused with 503. Runs on the event loop.

The name of a client's certificate, which TLS has verified, is found once and added to every request; so is the socket.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Final, cast

from litestar.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from headrace.edge.certificates import certificate_name
from headrace.protocols.http.disconnects import SOCKET
from headrace.protocols.http.errors import Problem
from headrace.protocols.http.middleware.access import CERTIFICATE_NAME
from headrace.protocols.http.middleware.headers import security_headers
from headrace.protocols.http.middleware.limits import too_many_requests
from headrace.protocols.http.middleware.refusals import refusal, send_refusal
from headrace.protocols.http.settings import HttpSettings

# Connections in addition to those with a running request.
SPARE_CONNECTIONS: Final = 1_000
HEADERS_MAX: Final = 256
# Pipelined requests: sent before the first of them is answered.
PIPELINED_MAX: Final = 64
# After an error the client may continue to send for a while, so that it can read the answer.
_LINGER_SECONDS: Final = 2.0
_LINGER_BYTES: Final = 4 << 20


class _TooMuch(Exception):
    """Ends the parsing of a head."""


class HttpConnection(HttpToolsProtocol):
    """One connection of a client."""

    def __init__(self, settings: HttpSettings, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._settings = settings
        self._served_app = self.app
        self._certificate_name: str | None = None
        # The request that is answered: `cycle` is the newest one, which may wait behind it.
        self._answered: RequestResponseCycle | None = None
        # Bytes since the last callback of the parser, and the part of a head that it has passed on.
        self._swallowed_bytes = 0
        self._head_bytes = 0
        self._is_in_head = False
        self._problem: Problem | None = None
        self._is_refused = False
        self._lingered_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        # Runs while the rest of a body arrives that was answered already.
        self._rest_timer: asyncio.TimerHandle | None = None

    # Time

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._certificate_name = certificate_name(transport.get_extra_info("peercert"))
        self._wait_for_request()

    def on_response_complete(self) -> None:
        # Refused before all of the body arrived: the client may send on for a while, so that it can read the answer.
        is_sending = self.cycle is not None and self.cycle.more_body
        super().on_response_complete()
        # Uvicorn's timer stops at the first byte, so it does not cover headers that are sent byte by byte.
        self._wait_for_request()
        if is_sending:
            self._lingered_bytes = 0
            self._rest_timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        if self._answered is not None and not self._answered.response_complete:
            # Uvicorn tells only the newest request that its client has left.
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = self.loop.call_later(self._settings.idle_seconds_max, self._give_up)

    def _give_up(self) -> None:
        if self._is_free():
            self.transport.close()

    def _head_is_late(self) -> None:
        seconds = self._settings.head_seconds_max
        detail = f"request line and headers did not arrive within {seconds:g} seconds"
        self._refuse(Problem("about:blank", "The head took too long", 408, detail, "head_too_slow", True))

    def _stop_timers(self) -> None:
        for timer in (self._head_timer, self._idle_timer, self._rest_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._idle_timer = self._rest_timer = None

    def _is_free(self) -> bool:
        """Whether no answer is being sent."""
        return self.cycle is None or self.cycle.response_complete

    # Size

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._linger(len(data))
            return
        self._swallowed_bytes += len(data)
        super().data_received(data)
        if not self._is_over():
            self._check_head()

    def _is_over(self) -> bool:
        return self._is_refused or self.transport.is_closing()

    def _check_head(self) -> None:
        if self._swallowed_bytes > self._settings.head_bytes_max:
            self._refuse(self._too_large())
        elif self._is_in_head and self._head_timer is None:
            self._head_timer = self.loop.call_later(self._settings.head_seconds_max, self._head_is_late)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED_MAX:
            detail = f"more than {PIPELINED_MAX} requests were sent without waiting for an answer"
            self._stop_parsing(Problem("about:blank", "Too many requests at once", 400, detail, "bad_request", False))
        super().on_message_begin()
        scope = cast(dict[str, Any], self.scope)
        scope[SOCKET] = self.transport.get_extra_info("socket")
        if self._certificate_name is not None:
            scope[CERTIFICATE_NAME] = self._certificate_name
        self._is_in_head = True
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._weigh(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            # A trailer must not be mistaken for a header: headers were checked before.
            return
        self._weigh(len(name) + len(value) + 4)
        if len(self.headers) >= HEADERS_MAX:
            self._stop_parsing(self._too_large())
        super().on_header(name, value)

    def _weigh(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._settings.head_bytes_max:
            self._stop_parsing(self._too_large())

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._swallowed_bytes = 0
        self._stop_timers()
        is_full = len(self.connections) > self._settings.connections_max + SPARE_CONNECTIONS
        self.app = self._refuse_connection if is_full else self._served_app
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._swallowed_bytes = 0
        if self._rest_timer is not None:
            self._linger(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._swallowed_bytes = 0
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None
        super().on_message_complete()

    # Refusals

    async def _refuse_connection(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An application that rejects every request."""
        await send_refusal(send, str(scope.get("path")), too_many_requests(self._settings))

    def _too_large(self) -> Problem:
        detail = (
            f"request line and headers are more than {self._settings.head_bytes_max} bytes or "
            f"{HEADERS_MAX} headers: send less"
        )
        return Problem("about:blank", "The head is too large", 431, detail, "head_too_large", False)

    def _stop_parsing(self, problem: Problem) -> None:
        self._problem = problem
        raise _TooMuch

    def send_400_response(self, msg: str) -> None:
        """Called when the parser stopped: the input is not HTTP, or parsing was aborted."""
        detail = "the request is not valid HTTP"
        malformed = Problem("about:blank", "Bad request", 400, detail, "bad_request", False)
        self._refuse(self._problem or malformed)

    def _unsupported_upgrade_warning(self) -> None:
        """Does nothing: an upgrade request is answered as a normal one."""

    def _refuse(self, problem: Problem) -> None:
        """Answer, and close once the client has had time to read the answer."""
        self._is_refused = True
        self._stop_timers()
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            return
        if not self._is_free():
            self.transport.close()
            return
        headers, body = refusal(self._refused_path(), problem)
        headers += security_headers(self.scheme == "https")
        lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}".encode()]
        lines += [name + b": " + value for name, value in headers]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._idle_timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)
        else:
            self.transport.close()

    def _refused_path(self) -> str:
        url: bytes = getattr(self, "url", b"")
        return url.partition(b"?")[0].decode("latin-1")

    def _linger(self, size: int) -> None:
        self._lingered_bytes += size
        if self._lingered_bytes > _LINGER_BYTES:
            self.transport.abort()

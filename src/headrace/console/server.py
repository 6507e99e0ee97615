"""The process of a console: its application on a socket, until a signal."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

import uvicorn
from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from headrace.console.guard import Guard
from headrace.console.monitor.poller import Poller
from headrace.console.pages.registry import register_all
from headrace.console.sessions import Sessions
from headrace.console.settings import ConsoleSettings
from headrace.console.sign_in import SignIn
from headrace.console.view.frame import Frame

STATIC: Final = Path(__file__).with_name("static")
# How long requests may run on after a signal.
_STOP_SECONDS: Final = 3

logger = logging.getLogger(__name__)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def serve(settings: ConsoleSettings, listener: socket.socket, say_ready: Callable[[], None]) -> None:
    """Run a console until SIGTERM or Ctrl-C."""
    app = make_app(settings, listener.getsockname()[0], listener.getsockname()[1])
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
        ws=_WebSocket,
        ws_max_size=1 << 20,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
    _Server(config, say_ready, settings.parent).run(sockets=[listener])


class _WebSocket(WebSocketsSansIOProtocol):
    """A page's connection. One that is being closed as the console stops would otherwise end it with an error."""

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except InvalidState:
            self.transport.close()


class _Server(uvicorn.Server):
    """Says when it is ready, and ends with its parent."""

    def __init__(self, config: uvicorn.Config, say_ready: Callable[[], None], parent: int | None) -> None:
        super().__init__(config)
        self._say_ready = say_ready
        self._parent = parent

    async def on_tick(self, counter: int) -> bool:
        # A process whose parent died is given another one.
        return await super().on_tick(counter) or (self._parent is not None and os.getppid() != self._parent)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._say_ready()


def make_app(settings: ConsoleSettings, address: str, port: int) -> ASGIApp:
    """The application: pages inside, the guard around them."""
    is_loopback = ipaddress.ip_address(address).is_loopback
    is_tls = settings.tls_certificate is not None
    sessions = Sessions(settings, allow_anonymous=is_loopback)
    poller = Poller(settings, sessions)
    sign_in = SignIn(sessions, poller, settings.url, port, is_tls)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        polling = asyncio.create_task(poller.run())
        polling.add_done_callback(_log_failure)
        yield
        polling.cancel()
        with suppress(asyncio.CancelledError):
            await polling
        await sessions.close()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    sign_in.register(app)
    nicegui_app.add_static_files("/static", STATIC)
    nicegui_app.add_exception_handler(404, _not_found)
    register_all(Frame(settings, sign_in, sessions, poller, version("headrace")))
    ui.run_with(
        app,
        title="Headrace",
        favicon=STATIC / "mark.svg",
        dark=None,
        language="en-US",
        tailwind=False,
        gzip_middleware_factory=None,
        show_welcome_message=False,
        reconnect_timeout=30.0,
        binding_refresh_interval=None,
    )
    guarded = Guard(app, lambda each: sign_in.session_of(each) is not None, settings.allowed_hosts, is_loopback, is_tls)
    return GZipMiddleware(guarded, minimum_size=1_000)


async def _not_found(_: Request, __: Exception) -> Response:
    """In place of NiceGUI's page, which takes memory for a minute and a line of the log, without a sign-in."""
    return PlainTextResponse("there is no such page", 404)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("the poller failed: no more samples", exc_info=task.exception())

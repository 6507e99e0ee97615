"""The HTTP server: sockets, TLS, limits, and a stop that finishes accepted requests.

    listeners = bind("127.0.0.1", 0)
    serve(app, listeners, settings, draining, on_ready=lambda: print("ready"))

`serve` runs until SIGTERM or SIGINT. Then it takes no more connections, lets long polls and subscriptions go, waits for
the requests under way, at most `stop_seconds`, and returns; a second signal ends the waiting. It owns neither broker
nor store: their owner closes them afterwards. SIGHUP loads the certificate again, here and by `on_reload`
elsewhere, but not the authority of clients: a context can add trusted ones, and not remove any.
"""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import uvicorn
from litestar.types import ASGIApp

from headrace.edge.draining import Draining
from headrace.protocols.http.connection import HttpConnection
from headrace.protocols.http.settings import HttpSettings

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger(__name__)


def bind(host: str, port: int) -> list[socket.socket]:
    """A socket for every address of the host, all on one port; port 0 picks a free port."""
    listeners: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            listener = socket.socket(family, kind, protocol)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address[0], port_of(listeners[:1]) or port, *address[2:]))
    except OSError:
        close_all(listeners)
        raise
    return listeners


def close_all(listeners: Sequence[socket.socket]) -> None:
    """Close sockets that will not be served."""
    for listener in listeners:
        listener.close()


def port_of(listeners: Sequence[socket.socket]) -> int:
    """The port that the sockets are bound to."""
    return int(listeners[0].getsockname()[1])


def is_loopback(listeners: Sequence[socket.socket]) -> bool:
    """Whether only this machine can reach the sockets."""
    return all(ipaddress.ip_address(listener.getsockname()[0]).is_loopback for listener in listeners)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the server's certificate and key, and who signs the certificates of clients if they need any."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    is_client_optional: bool = False


def load_tls(files: TlsFiles) -> ssl.SSLContext:
    """TLS with these files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key, password=_no_password)
    if files.client_ca is not None:
        context.load_verify_locations(files.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL if files.is_client_optional else ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    # Without this OpenSSL would prompt on the terminal, and the server would hang.
    raise ValueError("the key is encrypted: use a key without a password")


def serve(
    app: ASGIApp,
    listeners: Sequence[socket.socket],
    settings: HttpSettings,
    draining: Draining,
    on_ready: Callable[[], None],
    tls: TlsFiles | None = None,
    access_log: bool = False,
    on_reload: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal says stop. `on_reload` is called when a renewed certificate was found good."""
    context = None if tls is None else load_tls(tls)
    config = uvicorn.Config(
        cast(Any, app),
        http=cast(Any, partial(HttpConnection, settings)),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=access_log,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=cast(int, settings.idle_seconds_max),
        timeout_graceful_shutdown=cast(int, settings.stop_seconds),
        ssl_context_factory=None if context is None else lambda *_: context,
    )
    server = _Server(config, draining, on_ready)
    with server.listening_to_signals(context, tls, on_reload):
        server.run(sockets=list(listeners))


class _Server(uvicorn.Server):
    """Uvicorn's server; it reports when it is ready, and ends long polls before it waits for requests."""

    def __init__(self, config: uvicorn.Config, draining: Draining, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._draining = draining
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._draining.begin()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Does nothing: uvicorn would raise the signals again at its end, before the store is closed."""
        yield

    @contextmanager
    def listening_to_signals(
        self, context: ssl.SSLContext | None, tls: TlsFiles | None, on_reload: Callable[[], None]
    ) -> Iterator[None]:
        """Stop at the first signal, wait no longer at the second."""

        def stop(number: int, _: object) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True

        def reload(number: int, _: object) -> None:
            if _reload(context, tls):
                on_reload()

        before = {number: signal.signal(number, stop) for number in _STOPPING}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, reload)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _reload(context: ssl.SSLContext | None, tls: TlsFiles | None) -> bool:
    """Use a renewed certificate for new connections; returns whether it was valid. An invalid one changes nothing."""
    if context is None or tls is None:
        logger.info("SIGHUP ignored: TLS is not configured, there is no certificate to reload")
        return False
    try:
        load_tls(tls)
        context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
        logger.info("reloaded the certificate %s", tls.certificate)
    except (OSError, ValueError) as error:
        logger.error("cannot reload the certificate %s, the old one stays in use: %s", tls.certificate, error)
        return False
    return True

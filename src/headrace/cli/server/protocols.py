"""The protocols of a server beside HTTP: a list, which everything that starts, checks or names them goes through.

A new protocol is a folder under `protocols/`, its section of the settings, and an entry here. Each runs on the port
that was reserved for it, as long as a `with` block. One that cannot be stopped in time is reported, so that the process
does not wait for its threads.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Final, NamedTuple, TypeVar

from headrace.broker import Broker
from headrace.broker.access import Access
from headrace.cli.exits import Exit, Failure
from headrace.cli.options.listen_address import parse_address, url_of
from headrace.cli.server.settings import ServeSettings
from headrace.core.limits import BATCH_BYTES_MAX
from headrace.edge.envelope.watched_port import WatchedPort
from headrace.edge.event_loop.frame_server import FrameServer
from headrace.edge.limits import Limits
from headrace.edge.settings import OFF, OptionalPortSettings
from headrace.protocols.flight.listener import Certificates, FlightListener
from headrace.protocols.flight.server import FlightServer
from headrace.protocols.http import server
from headrace.protocols.native.server import NativeServer

S = TypeVar("S", bound=OptionalPortSettings)
# Followers check twice a second whether the server is stopping.
_STOP_SECONDS: Final = 5.0


class Endpoint(NamedTuple):
    """A protocol server that runs: its name, and the URL that clients connect to.

    reload: has it use a renewed certificate.
    stop: stops it; returns whether that succeeded in time.
    """

    protocol: str
    url: str
    reload: Callable[[], None]
    stop: Callable[[], bool]


class Shared(NamedTuple):
    """What all protocols of a server share."""

    broker: Broker
    access: Access
    settings: ServeSettings
    tls: server.TlsFiles | None
    limits: Limits
    # Where clients that come over Flight find the native wire.
    native_port: int | None = None

    @property
    def stop_seconds(self) -> float:
        """How long a protocol may take to stop."""
        return min(_STOP_SECONDS, self.settings.stop_seconds)


class Protocol(NamedTuple):
    """A protocol that a server can speak.

    listen: its listen address, or OFF.
    start: starts it on the sockets that were reserved.
    module: what it needs to be installed, by the extra of its own name.
    advertised: the HOST:PORT that clients are told instead of the server's own, or nothing.
    """

    name: str
    listen: Callable[[ServeSettings], str]
    start: Callable[[Shared, list[socket.socket]], Endpoint]
    module: str = ""
    advertised: Callable[[ServeSettings], str] = lambda settings: ""

    def check(self, settings: ServeSettings) -> None:
        """Raise what keeps it from being started."""
        if self.module and self.listen(settings) != OFF and find_spec(self.module) is None:
            what = f"the {self.name.capitalize()} protocol needs {self.module}"
            raise Failure(Exit.USAGE, f"{what}: install headrace[{self.name}], or set {self.name}.listen to off")


@contextmanager
def running(shared: Shared, bound: Mapping[str, list[socket.socket]], left_open: list[str]) -> Iterator[list[Endpoint]]:
    """Run the protocols that a port was reserved for; the URL of one that cannot be stopped goes to `left_open`."""
    with ExitStack() as stack:
        endpoints: list[Endpoint] = []
        for protocol in PROTOCOLS:
            if protocol.name in bound:
                endpoints.append(endpoint := protocol.start(shared, bound[protocol.name]))
                stack.callback(_stop, endpoint, left_open)
        yield endpoints


def _stop(endpoint: Endpoint, left_open: list[str]) -> None:
    if not endpoint.stop():
        left_open.append(endpoint.url)


def _start_flight(shared: Shared, reserved: list[socket.socket]) -> Endpoint:
    """Flight, which binds the port itself; it would share one that is in use, so the port was reserved first."""
    port, tls = server.port_of(reserved), shared.tls
    server.close_all(reserved)
    host = parse_address(shared.settings.flight)[0]
    # Read once, as HTTP does: all ports trust the same authority.
    client_ca = None if tls is None or tls.client_ca is None else tls.client_ca.read_bytes()
    if tls is not None and tls.is_client_optional:
        # Flight can require certificates or not ask for them: where they are optional its callers send tokens.
        client_ca = None

    def load() -> Certificates:
        return [] if tls is None else [(tls.certificate.read_bytes(), tls.key.read_bytes())]

    # One batch may be that large.
    watch = WatchedPort(port, "flight", max(shared.limits.partial_bytes_max, 2 * BATCH_BYTES_MAX))

    def make(location: str, certificates: Certificates) -> FlightServer:
        return FlightServer(
            shared.broker,
            shared.access,
            location,
            certificates,
            client_ca=client_ca,
            limits=shared.limits,
            native_port=shared.native_port,
            watch=watch,
        )

    def stop() -> bool:
        has_ended = listener.stop(shared.stop_seconds)
        watch.stop()
        return has_ended

    listener = FlightListener(load, make, url_of("grpc+tls" if tls else "grpc", host, port))
    watch.start()
    url = url_of("headrace+tls" if tls else "headrace", host, port)
    return Endpoint("flight", url, listener.reload, stop)


def _start_kafka(shared: Shared, listeners: list[socket.socket]) -> Endpoint:
    # Imported here: what it needs is an extra.
    from headrace.protocols.kafka.server import KafkaServer

    settings = shared.settings.kafka
    return _start_frames(KafkaServer, settings, settings.listen, shared, listeners)


def _start_native(shared: Shared, listeners: list[socket.socket]) -> Endpoint:
    settings = shared.settings.native
    return _start_frames(NativeServer, settings, settings.listen, shared, listeners)


def _start_frames(
    kind: type[FrameServer[S]], settings: S, listen: str, shared: Shared, listeners: list[socket.socket]
) -> Endpoint:
    """A protocol of frames, which shares the TLS context of its port with all connections to come."""
    tls, bounded = shared.tls, settings.within(shared.settings.limits)
    context = None if tls is None else server.load_tls(tls)
    frames = kind(shared.broker, shared.access, bounded, listeners, context, shared.limits, shared.stop_seconds)
    frames.start()

    def reload() -> None:
        if context is not None and tls is not None:
            # HTTP has found the files good a moment ago.
            context.load_cert_chain(tls.certificate, tls.key)

    scheme = f"{kind.protocol}+tls" if tls else kind.protocol
    url = url_of(scheme, parse_address(listen)[0], server.port_of(listeners))
    return Endpoint(kind.protocol, url, reload, frames.stop)


def _start_ydb(shared: Shared, reserved: list[socket.socket]) -> Endpoint:
    """YDB, whose gRPC binds the port itself, as Flight does."""
    # Imported here: what it needs is an extra.
    from headrace.protocols.ydb.server import Certificates, YdbServer

    port, tls = server.port_of(reserved), shared.tls
    settings = shared.settings.ydb.within(shared.settings.limits)
    server.close_all(reserved)
    host = parse_address(settings.listen)[0]
    certificates = None
    if tls is not None:
        # As for Flight: where certificates of clients are optional its callers send tokens.
        client_ca = None if tls.client_ca is None or tls.is_client_optional else tls.client_ca.read_bytes()
        files = tls
        certificates = Certificates(lambda: (files.certificate.read_bytes(), files.key.read_bytes()), client_ca)
    ydb = YdbServer(
        shared.broker, shared.access, settings, (host, port), certificates, shared.limits, shared.stop_seconds
    )
    ydb.start()
    return Endpoint("ydb", url_of("ydb+tls" if tls else "ydb", host, port), ydb.reload, ydb.stop)


def _start_cursus(shared: Shared, listeners: list[socket.socket]) -> Endpoint:
    # Imported here: a server that does not speak it starts sooner.
    from headrace.protocols.cursus.server import CursusServer

    settings = shared.settings.cursus
    return _start_frames(CursusServer, settings, settings.address, shared, listeners)


PROTOCOLS: Final = (
    Protocol("flight", lambda settings: settings.flight, _start_flight),
    Protocol("native", lambda settings: settings.native.listen, _start_native),
    Protocol(
        "kafka",
        lambda settings: settings.kafka.listen,
        _start_kafka,
        module="kio",
        advertised=lambda settings: settings.kafka.advertised,
    ),
    Protocol(
        "ydb",
        lambda settings: settings.ydb.listen,
        _start_ydb,
        module="ydb",
        advertised=lambda settings: settings.ydb.advertised,
    ),
    Protocol(
        "cursus",
        lambda settings: settings.cursus.address,
        _start_cursus,
        advertised=lambda settings: settings.cursus.advertised,
    ),
)

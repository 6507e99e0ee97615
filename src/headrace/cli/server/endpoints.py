"""The protocol servers beside HTTP: Flight and Kafka, each on the port that was reserved for it.

Both live as long as a `with` block. One that cannot be stopped in time is reported, so that the process does not wait
for its threads.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from headrace.broker import Broker
from headrace.broker.access import Access
from headrace.cli.options.listen_address import parse_address, url_of
from headrace.cli.server.settings import ServeSettings
from headrace.edge.limits import Limits
from headrace.protocols.flight.listener import Certificates, FlightListener
from headrace.protocols.flight.server import FlightServer
from headrace.protocols.http import server

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

    @property
    def stop_seconds(self) -> float:
        """How long a protocol may take to stop."""
        return min(_STOP_SECONDS, self.settings.rest.stop_seconds)


@contextmanager
def running(
    start: Callable[[Shared, list[socket.socket]], Endpoint],
    shared: Shared,
    sockets: list[socket.socket] | None,
    left_open: list[str],
) -> Iterator[list[Endpoint]]:
    """Run a protocol if a port was reserved for it; if it cannot be stopped in time, its URL goes to `left_open`."""
    if sockets is None:
        yield []
        return
    endpoint = start(shared, sockets)
    try:
        yield [endpoint]
    finally:
        if not endpoint.stop():
            left_open.append(endpoint.url)


def start_flight(shared: Shared, reserved: list[socket.socket]) -> Endpoint:
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

    def make(location: str, certificates: Certificates) -> FlightServer:
        return FlightServer(
            shared.broker, shared.access, location, certificates, client_ca=client_ca, limits=shared.limits
        )

    listener = FlightListener(load, make, url_of("grpc+tls" if tls else "grpc", host, port))
    url = url_of("headrace+tls" if tls else "headrace", host, port)
    return Endpoint("flight", url, listener.reload, lambda: listener.stop(shared.stop_seconds))


def start_kafka(shared: Shared, listeners: list[socket.socket]) -> Endpoint:
    """Kafka, which shares the TLS context of its port with all connections to come."""
    # Imported here: what it needs is an extra.
    from headrace.protocols.kafka.server import KafkaServer

    tls, settings = shared.tls, shared.settings.kafka
    context = None if tls is None else server.load_tls(tls)
    kafka = KafkaServer(shared.broker, shared.access, settings, listeners, context, shared.limits, shared.stop_seconds)
    kafka.start()

    def reload() -> None:
        if context is not None and tls is not None:
            # HTTP has found the files good a moment ago.
            context.load_cert_chain(tls.certificate, tls.key)

    host = parse_address(settings.listen)[0]
    url = url_of("kafka+tls" if tls else "kafka", host, server.port_of(listeners))
    return Endpoint("kafka", url, reload, kafka.stop)

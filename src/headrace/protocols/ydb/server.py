"""The YDB server: gRPC on an event loop in a thread of its own, and a stop that tells clients to come back.

    with YdbServer(broker, access, settings, ("127.0.0.1", 2136)) as server: ...

The loop has its own bridge to the broker; limits and tokens are those of the other protocols. gRPC binds the port
itself. Every method is served as a stream of bytes, so that callers are known, and bounded, before anything of theirs
is read or decoded. A stopping server ends sessions as unavailable: clients reconnect by themselves. It owns neither
broker nor store.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

import grpc

from headrace.broker import Broker
from headrace.broker.access import Access
from headrace.core.errors import Overloaded
from headrace.core.limits import STOP_SECONDS
from headrace.edge.access import Gate, Leases
from headrace.edge.bridge import Bridge
from headrace.edge.draining import Draining
from headrace.edge.envelope import allocator
from headrace.edge.envelope.envelope import Envelope, envelope
from headrace.edge.envelope.watched_port import WatchedPort
from headrace.edge.event_loop.long_poll import LoopWakeups
from headrace.edge.event_loop.loop_server import LoopServer
from headrace.edge.limits import Limits
from headrace.protocols.ydb.call import SharedParts, YdbCall
from headrace.protocols.ydb.services.table import METHODS, Method
from headrace.protocols.ydb.settings import YdbSettings
from headrace.protocols.ydb.statuses import Status, YdbRefusal, status_of

# What calls of gRPC raise once the client has left.
_LEFT: Final = (ConnectionError, grpc.aio.UsageError, grpc.aio.InternalError)
# How often budgets are looked at.
_LOOK_SECONDS: Final = 0.25
# A connection without a call for this time is closed; clients connect again.
_IDLE_MS: Final = 3_600_000
_HANDSHAKE_MS: Final = 15_000
# A peer that does not answer a ping in this time is gone.
_PING_MS, _PING_TIMEOUT_MS = 30_000, 20_000
# Clients may ping idle connections as often as this.
_CLIENT_PING_MS: Final = 5_000
_CALLS_PER_CONNECTION: Final = 1_000
# The set of gRPC's own compressions that has none of them.
_UNCOMPRESSED: Final = 1
# As YDB's own servers: SDKs expect that larger messages are refused by gRPC.
_RECEIVE_BYTES_MAX: Final = 64_000_000
# A response holds one message at least, with its attributes.
_SEND_BYTES_MAX: Final = 128 << 20

logger = logging.getLogger(__name__)


class Certificates(NamedTuple):
    """Certificate, key, and the authority of client certificates if they are required; read again at `reload`."""

    load: Callable[[], tuple[bytes, bytes]]
    client_ca: bytes | None


class YdbServer(LoopServer):
    """YDB's topic API over a broker, on an address."""

    protocol = "ydb"

    def __init__(
        self,
        broker: Broker,
        access: Access,
        settings: YdbSettings,
        address: tuple[str, int],
        certificates: Certificates | None = None,
        limits: Limits | None = None,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        super().__init__(stop_seconds)
        self._broker = broker
        self._gate = Gate(access, limits)
        self._settings = settings
        self._address = address
        self._certificates = certificates
        self._reloaded = threading.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.port = address[1]

    def reload(self) -> None:
        """Read the certificate again for connections to come."""
        self._reloaded.set()

    async def _serve(self, is_ready: Future[None]) -> None:
        draining = Draining()
        bridge = Bridge(self._broker, draining, self._stop_seconds)
        bounds = envelope("ydb", self._settings, self._gate.limits, logger)
        logging.getLogger(grpc._cython.cygrpc.__name__).addFilter(_is_no_leaving)
        share_bytes = max(self._gate.limits.partial_bytes_max, self._settings.request_bytes_max)
        server = grpc.aio.server(options=self._options())
        self.port = self._bind(server)
        parts = SharedParts(
            self._settings,
            bridge,
            self._gate,
            Leases(self._gate),
            LoopWakeups(bridge),
            bounds,
            (self._address[0], self.port),
            self._certificates is not None,
            watch := WatchedPort(self.port, "ydb", share_bytes),
        )
        server.add_generic_rpc_handlers((_Methods(parts, self._tasks),))
        await server.start()
        watch.start()
        watching = asyncio.create_task(_watch_budgets(bounds, bridge))
        is_ready.set_result(None)
        try:
            await self._stopping.wait()
        finally:
            draining.begin()
            # Sessions end by themselves, with a status; then nothing is left to abort.
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self._stop_seconds)
            await server.stop(0.0)
            watching.cancel()
            watch.stop()
            bounds.closed.summarise(is_over=True)
            bridge.close()

    def _options(self) -> list[tuple[str, int]]:
        return [
            # A port that is in use is an error, not a share of its connections.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", min(self._settings.request_bytes_max, _RECEIVE_BYTES_MAX)),
            ("grpc.max_send_message_length", _SEND_BYTES_MAX),
            ("grpc.max_concurrent_streams", _CALLS_PER_CONNECTION),
            # What a message takes is what arrived of it: codecs of YDB's messages are not concerned.
            ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED),
            ("grpc.max_allowed_incoming_connections", self._settings.connections_max),
            ("grpc.max_connection_idle_ms", _IDLE_MS),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
            ("grpc.keepalive_time_ms", _PING_MS),
            ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", _CLIENT_PING_MS),
            ("grpc.http2.max_ping_strikes", 0),
        ]

    def _bind(self, server: Any) -> int:
        host, port = self._address
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if self._certificates is None:
            return int(server.add_insecure_port(place))
        load, client_ca = self._certificates

        def configured() -> Any:
            return grpc.ssl_server_certificate_configuration([load()[::-1]], client_ca)

        def renewed() -> Any:
            if not self._reloaded.is_set():
                return None
            self._reloaded.clear()
            try:
                return configured()
            except (OSError, ValueError) as error:
                logger.warning("the YDB port keeps its certificate: %s", error)
                return None

        credentials = grpc.dynamic_ssl_server_credentials(configured(), renewed, client_ca is not None)
        return int(server.add_secure_port(place, credentials))


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """All methods, each as a stream of bytes in and out."""

    def __init__(self, parts: SharedParts, tasks: set[asyncio.Task[Any]]) -> None:
        self._parts = parts
        self._tasks = tasks

    def service(self, details: Any) -> Any:
        """What serves the method of this call; None for gRPC's own answer that there is no such method."""
        method = METHODS.get(details.method)
        if method is None:
            return None

        async def serve(_: Any, context: Any) -> None:
            task = asyncio.current_task()
            assert task is not None, "gRPC runs handlers in tasks"
            self._tasks.add(task)
            try:
                await _serve_call(self._parts, method, context, task)
            finally:
                self._tasks.discard(task)

        return grpc.stream_stream_rpc_method_handler(serve)


async def _serve_call(parts: SharedParts, method: Method, context: Any, task: asyncio.Task[Any]) -> None:
    call = YdbCall(parts, context, method.name)
    traffic = parts.gate.limits.traffic["ydb"]

    def end(_reason: str) -> None:
        task.cancel()

    place = parts.envelope.connections.arrive(call.address, end)
    outcome = Status.SUCCESS
    try:
        with traffic.connected():
            if place is None:
                raise Overloaded("the number of calls (limits.connections_max)", parts.settings.connections_max, 0.0)
            if not method.is_public:
                place.sign_in((await call.admit()).caller)
            await method.run(call)
    except _LEFT:
        # gRPC takes the call for cancelled, which it is, and sends no more.
        raise asyncio.CancelledError from None
    except Exception as error:
        outcome = status_of(error)
        if method.is_stream and outcome in (Status.BAD_REQUEST, Status.TIMEOUT):
            parts.envelope.closed.warn(f"{method.name} of {call.address} ended: {error}")
        try:
            await call.write(method.failed(error))
        except (*_LEFT, YdbRefusal):
            # One who does not receive it is not waited for.
            raise asyncio.CancelledError from None
    finally:
        traffic.count(method.name, Status.StatusCode.Name(outcome).lower(), 0, 0)
        call.close()
        if place is not None:
            place.leave()


def _is_no_leaving(record: logging.LogRecord) -> bool:
    """gRPC logs it as an error if a client leaves while the end of its call is sent."""
    return record.exc_info is None or not isinstance(record.exc_info[1], grpc.aio.InternalError)


async def _watch_budgets(bounds: Envelope, bridge: Bridge) -> None:
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        bounds.strangers.serve()
        bounds.received.serve()
        bounds.closed.summarise()
        if bounds.has_given_back():
            await bridge.call(allocator.trim)

"""A server of a protocol of frames: an event loop in a thread of its own, and a stop that finishes accepted requests.

    class KafkaServer(FrameServer[KafkaSettings]): ...      says what serves a connection
    with KafkaServer(broker, access, settings, listeners) as server: ...

The loop has its own bridge to the broker; limits and tokens are those of the other protocols. Stopping takes no more
connections, lets long polls go, and waits for what is being written. It owns neither broker nor store.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

from headrace.broker import Broker
from headrace.broker.access import Access
from headrace.core.limits import STOP_SECONDS
from headrace.edge.access import Gate
from headrace.edge.bridge import Bridge
from headrace.edge.draining import Draining
from headrace.edge.envelope import allocator
from headrace.edge.envelope.connections import ConnectionPlace
from headrace.edge.envelope.envelope import Envelope, envelope
from headrace.edge.event_loop.frame_connection import FrameConnection
from headrace.edge.event_loop.frames import Frames
from headrace.edge.event_loop.loop_server import LoopServer
from headrace.edge.limits import Limits
from headrace.edge.settings import OptionalPortSettings

# How often connections are looked at that may have waited too long.
_LOOK_SECONDS = 0.25
# A TLS handshake that takes longer ends its connection, which is not counted before.
HANDSHAKE_SECONDS: Final = 15.0

logger = logging.getLogger(__name__)

# Makes what serves one connection.
Serve = Callable[[Frames, ConnectionPlace], FrameConnection[Any]]


S = TypeVar("S", bound=OptionalPortSettings)


class FrameServer(LoopServer, Generic[S]):
    """A protocol over a broker, on sockets that are bound."""

    def __init__(
        self,
        broker: Broker,
        access: Access,
        settings: S,
        listeners: Sequence[socket.socket],
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        super().__init__(stop_seconds)
        self.settings = settings
        self.gate = Gate(access, limits)
        self._broker = broker
        self._listeners = listeners
        self._tls = tls
        self._connections: dict[asyncio.Task[None], Frames] = {}
        self._background: list[asyncio.Task[None]] = []

    @abstractmethod
    async def open(self, bridge: Bridge, bounds: Envelope) -> Serve:
        """Make what all connections share; called on the event loop before there are any."""

    def drain(self) -> None:
        """End what connections wait for; called on the event loop when the server stops."""

    def keep(self, work: Coroutine[None, None, None]) -> None:
        """Have work done on the event loop until the server has stopped."""
        self._background.append(asyncio.get_running_loop().create_task(work))

    async def _serve(self, is_ready: Future[None]) -> None:
        draining = Draining()
        bridge = Bridge(self._broker, draining, self._stop_seconds)
        bounds = envelope(self.protocol, self.settings, self.gate.limits, logger)
        serve = await self.open(bridge, bounds)
        servers = await self._listen(serve, bounds)
        self.keep(self._watch_connections(bounds, bridge))
        is_ready.set_result(None)
        try:
            await self._stopping.wait()
        finally:
            for server in servers:
                server.close()
            draining.begin()
            for frames in self._connections.values():
                frames.drain()
            self.drain()
            if self._connections:
                _, late = await asyncio.wait(self._connections, timeout=self._stop_seconds)
                for task in late:
                    task.cancel()
            for task in self._background:
                task.cancel()
            bounds.closed.summarise(is_over=True)
            bridge.close()

    async def _listen(self, serve: Serve, bounds: Envelope) -> list[asyncio.Server]:
        loop = asyncio.get_running_loop()

        def connected(frames: Frames) -> None:
            place = bounds.connections.arrive(frames.host, frames.abort)
            if place is None:
                frames.abort(f"there are {len(bounds.connections)} (limits.connections_max)")
                return
            task = asyncio.create_task(serve(frames, place).run())
            self._connections[task] = frames
            task.add_done_callback(lambda task: self._connections.pop(task))

        def connect() -> Frames:
            return Frames(self.protocol, self.settings, bounds, connected)

        patience = None if self._tls is None else HANDSHAKE_SECONDS
        return [
            await loop.create_server(connect, sock=each, ssl=self._tls, ssl_handshake_timeout=patience)
            for each in self._listeners
        ]

    async def _watch_connections(self, bounds: Envelope, bridge: Bridge) -> None:
        """End connections that take too long: one look at all of them instead of a timer for each wait."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = loop.time()
            for frames in list(self._connections.values()):
                frames.check_deadline(now)
            bounds.received.serve()
            bounds.closed.summarise()
            if bounds.has_given_back():
                await bridge.call(allocator.trim)

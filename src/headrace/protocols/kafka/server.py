"""The Kafka server: an event loop in a thread of its own, and a stop that finishes accepted requests.

    with KafkaServer(broker, access, settings, listeners) as server: ...

The loop has its own bridge to the broker; limits and tokens are those of the other protocols. Stopping takes no more
connections, lets long polls go, and waits for what is being written. It owns neither broker nor store.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

import uvloop

from headrace.broker import Broker
from headrace.broker.access import Access
from headrace.core.limits import STOP_SECONDS
from headrace.edge.access import Gate, Leases
from headrace.edge.bridge import Bridge
from headrace.edge.draining import Draining
from headrace.edge.envelope import allocator
from headrace.edge.envelope.envelope import Envelope, envelope
from headrace.edge.event_loop.long_poll import LoopWakeups
from headrace.edge.limits import Limits
from headrace.protocols.kafka.apis.call import Parts
from headrace.protocols.kafka.apis.records.fetch_sessions import FetchSessions
from headrace.protocols.kafka.connection import KafkaConnection
from headrace.protocols.kafka.coordinator.coordinator import Coordinator
from headrace.protocols.kafka.frames import Frames
from headrace.protocols.kafka.idempotence import WrittenBatches
from headrace.protocols.kafka.nodes import Nodes
from headrace.protocols.kafka.settings import KafkaSettings
from headrace.protocols.kafka.ticks import Ticks

# How often connections are looked at that may have waited too long.
_LOOK_SECONDS = 0.25
# A TLS handshake that takes longer ends its connection, which is not counted before.
HANDSHAKE_SECONDS: Final = 15.0

logger = logging.getLogger(__name__)


class KafkaServer:
    """Kafka over a broker, on sockets that are bound."""

    def __init__(
        self,
        broker: Broker,
        access: Access,
        settings: KafkaSettings,
        listeners: Sequence[socket.socket],
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        self._broker = broker
        self._gate = Gate(access, limits)
        self._settings = settings
        self._listeners = listeners
        self._tls = tls
        self._stop_seconds = stop_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._connections: dict[asyncio.Task[None], Frames] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen; returns once clients can connect."""
        is_ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=[is_ready], name="headrace-kafka", daemon=True)
        self._thread.start()
        is_ready.result()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Answer what was accepted and stop; whether all connections ended in time."""
        if self._thread is None or self._loop is None or self._stopping is None:
            return True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join((self._stop_seconds if timeout_seconds is None else timeout_seconds) + 1.0)
        return not self._thread.is_alive()

    def __enter__(self) -> KafkaServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, is_ready: Future[None]) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(is_ready))
        except BaseException as error:
            if not is_ready.done():
                is_ready.set_exception(error)
            else:
                logger.exception("the Kafka server failed")

    async def _serve(self, is_ready: Future[None]) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        draining = Draining()
        bridge = Bridge(self._broker, draining, self._stop_seconds)
        nodes = Nodes(bridge)
        await nodes.refresh()
        coordinator = Coordinator(bridge, self._settings.rebalance_delay_seconds)
        bounds = envelope("kafka", self._settings, self._gate.limits, logger)
        parts = Parts(
            self._settings,
            bridge,
            self._gate,
            Leases(self._gate),
            LoopWakeups(bridge),
            bounds,
            coordinator,
            WrittenBatches(bridge),
            nodes,
            FetchSessions(),
            Ticks(),
        )
        servers = await self._listen(parts)
        watching = self._watch_connections(bounds, bridge)
        background = asyncio.create_task(nodes.keep_fresh()), asyncio.create_task(watching)
        is_ready.set_result(None)
        try:
            await self._stopping.wait()
        finally:
            for server in servers:
                server.close()
            draining.begin()
            for frames in self._connections.values():
                frames.drain()
            coordinator.close()
            if self._connections:
                _, late = await asyncio.wait(self._connections, timeout=self._stop_seconds)
                for task in late:
                    task.cancel()
            for task in background:
                task.cancel()
            bounds.closed.summarise(is_over=True)
            bridge.close()

    async def _listen(self, parts: Parts) -> list[asyncio.Server]:
        bounds, loop = parts.envelope, asyncio.get_running_loop()

        def connected(frames: Frames) -> None:
            place = bounds.connections.arrive(frames.host, frames.abort)
            if place is None:
                frames.abort(f"there are {len(bounds.connections)} (kafka.connections_max)")
                return
            task = asyncio.create_task(KafkaConnection(parts, frames, place).run())
            self._connections[task] = frames
            task.add_done_callback(lambda task: self._connections.pop(task))

        def connect() -> Frames:
            return Frames(self._settings, bounds, connected)

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

"""Live subscriptions as server-sent events: what is sent next, and its encoding.

Each event has messages of one partition, and its id holds the position of every partition after it. A client that
reconnects with the last id it saw continues exactly there. An idle subscription needs an occasional comment, no thread,
and no buffer: messages are read once the client has received the previous ones. If retention has deleted the next
messages, a `gap` event says so; if the topic is deleted, the server stops or the token loses the right, an `end` event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
import pyarrow as pa
from litestar.types import Receive, Scope, Send

from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import Closed, HeadraceError, OffsetOutOfRange
from headrace.edge.access import Lease, Leases, Principal
from headrace.edge.bridge import Bridge
from headrace.edge.envelope.connections import end_if_silent
from headrace.edge.event_loop.long_poll import LoopWakeups, wait
from headrace.protocols.http.disconnects import SOCKET, left
from headrace.protocols.http.errors import problem_of
from headrace.protocols.http.requests.negotiation import EVENTS
from headrace.protocols.http.requests.positions import format_event_id
from headrace.wire.json import Encoding, Messages, messages_of

# Small, because each slow subscriber holds its last batch in memory, and there may be thousands of them.
MESSAGES_PER_READ: Final = 1_000
BYTES_PER_READ: Final = 32 << 10
RETRY_MILLISECONDS: Final = 1_000


class GapEvent(msgspec.Struct, frozen=True):
    """Messages that retention deleted before they could be sent: from one offset up to, not including, another."""

    partition: int
    from_offset: int
    to_offset: int


@dataclass
class Subscriber:
    """One subscription: its partitions and positions. Without chosen partitions it follows all, new ones too."""

    reader: TopicReader
    positions: dict[int, int]
    follows_all: bool
    encoding: Encoding
    idle_seconds: float
    lease: Lease

    @property
    def event_id(self) -> str:
        """Its positions, as an event id."""
        return format_event_id(self.reader.topic_id, self.positions)

    @property
    def wait_seconds(self) -> float:
        """How long to wait without a sign of life."""
        return self.idle_seconds

    def has_news(self) -> bool:
        """Whether there is anything to read."""
        if self.follows_all:
            for partition in range(len(self.positions), self.reader.partitions):
                self.positions[partition] = 0
        return self.reader.is_behind(self.positions)

    def next_events(self) -> list[bytes]:
        """Read and encode the next events; runs in a thread."""
        try:
            batches = self.reader.read(self.positions, MESSAGES_PER_READ, BYTES_PER_READ)
        except OffsetOutOfRange as error:
            if error.offset >= error.start:
                raise
            return [self._gap(error)]
        return [self._messages(batch) for batch in batches]

    def _gap(self, error: OffsetOutOfRange) -> bytes:
        self.positions[error.partition] = error.start
        return event("gap", GapEvent(error.partition, error.offset, error.start), self.event_id)

    def _messages(self, batch: pa.RecordBatch) -> bytes:
        partition = batch.column("partition")[0].as_py()
        answer = messages_of(batch, self.positions[partition], self.encoding)
        self.positions[partition] = answer.next_offset
        return event("messages", self.shown(answer), self.event_id)

    def shown(self, answer: Messages) -> msgspec.Struct:
        """What an event says of messages."""
        return answer


class EventStream:
    """The answer to a subscription, as an ASGI application."""

    def __init__(
        self,
        subscriber: Subscriber,
        principal: Principal,
        bridge: Bridge,
        wakes: LoopWakeups,
        leases: Leases,
        silent_seconds: float = 0.0,
    ) -> None:
        """With `silent_seconds` TCP ends the connection of a machine that takes nothing for so long."""
        self._silent_seconds = silent_seconds
        self._subscriber = subscriber
        self._principal = principal
        self._bridge = bridge
        self._wakes = wakes
        self._leases = leases

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Refused here, before anything is sent, is answered as everywhere.
        with self._principal.stream():
            sock = cast(dict[str, Any], scope).get(SOCKET)
            end_if_silent(sock, self._silent_seconds)
            try:
                await self._run(receive, send)
            finally:
                end_if_silent(sock, 0.0)

    async def _run(self, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(left(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            sending.cancel()
            leaving.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send_all(self, send: Send) -> None:
        # The last one: proxies pass each event on at once.
        headers = [(b"content-type", EVENTS.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(self._events()) as events:
            async for part in events:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncGenerator[bytes, None]:
        """Yield all events, until the topic is deleted or the server stops."""
        subscriber, draining = self._subscriber, self._wakes.draining
        # An id without data gives the client its position before the first event.
        yield b"retry: %d\nid: %s\n\n" % (RETRY_MILLISECONDS, subscriber.event_id.encode())
        try:
            with self._wakes.on(subscriber.reader) as wake, self._leases.waking(subscriber.lease, wake):
                while not draining.has_begun:
                    wake.clear()
                    subscriber.lease.check()
                    if subscriber.has_news():
                        parts = deque(await self._bridge.call(subscriber.next_events))
                        while parts:
                            yield parts.popleft()
                    elif not await wait(wake, subscriber.wait_seconds):
                        yield b":\n\n"
            yield _end(Closed("the server"))
        except HeadraceError as error:
            yield _end(error)


def event(kind: str, data: Any, event_id: str | None = None) -> bytes:
    """An event as it is sent; JSON has no line ends, so one line holds all of it."""
    head = f"event: {kind}\n" if event_id is None else f"event: {kind}\nid: {event_id}\n"
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


def _end(error: HeadraceError) -> bytes:
    """The last event: why there are no more."""
    return event("end", problem_of(error))

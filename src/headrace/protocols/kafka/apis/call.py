"""What a handler is given: the parts of the server, and the call with its principal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from headrace.edge.access import Gate, Leases, Principal
from headrace.edge.bridge import Bridge
from headrace.edge.draining import Draining
from headrace.edge.envelope.answer_room import AnswerRoom
from headrace.edge.envelope.envelope import Envelope
from headrace.edge.event_loop.long_poll import LoopWakeups
from headrace.protocols.kafka.settings import KafkaSettings
from headrace.protocols.kafka.ticks import Ticks

if TYPE_CHECKING:
    from headrace.protocols.kafka.apis.records.fetch_sessions import FetchSessions
    from headrace.protocols.kafka.apis.records.idle_fetch import Nothing
    from headrace.protocols.kafka.coordinator.coordinator import Coordinator
    from headrace.protocols.kafka.idempotence import WrittenBatches
    from headrace.protocols.kafka.nodes import Nodes

P = ParamSpec("P")
T = TypeVar("T")

# Requests and answers with more elements than this are read and written in a thread: some milliseconds' worth.
LOOP_ELEMENTS_MAX: Final = 1_000
# The same for requests and answers with more bytes than this, which may be few and long names.
LOOP_REQUEST_BYTES_MAX: Final = 1 << 20
# What an element of an answer takes in memory until it is encoded: a fetched partition 480, one in Metadata 370.
ANSWER_ELEMENT_BYTES: Final = 640
# Elements that a call looks at on the event loop before others get their turn.
_TURN: Final = 100


@dataclass(frozen=True, slots=True)
class Parts:
    """What all connections of a server share."""

    settings: KafkaSettings
    bridge: Bridge
    gate: Gate
    leases: Leases
    wakeups: LoopWakeups
    envelope: Envelope
    coordinator: Coordinator
    written: WrittenBatches
    nodes: Nodes
    fetch_sessions: FetchSessions
    ticks: Ticks


@dataclass(slots=True)
class Waited:
    """How long a request has waited before it was read, and what a fetch waited for in vain."""

    seconds: float = 0.0
    nothing: Nothing | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who sent it, in which version, and what ends with its connection."""

    parts: Parts
    principal: Principal
    api_key: int
    version: int
    client_id: str
    # The address of the client, and what clients are told to connect to.
    host: str
    advertised: tuple[str, int]
    # How many bytes it had.
    size: int
    gone: Draining
    room: AnswerRoom
    waited: Waited

    async def hold(self, elements: int, names: Iterable[str] = ()) -> None:
        """Wait for room for an answer before it is made: so many elements, such as partitions, and names in it."""
        # Encoded and joined, a character may take four bytes twice.
        names_bytes = 8 * sum(map(len, names))
        self.room.elements += elements
        self.room.is_large |= self.room.elements > LOOP_ELEMENTS_MAX or names_bytes > LOOP_REQUEST_BYTES_MAX
        await self.room.take(elements * ANSWER_ELEMENT_BYTES + names_bytes)

    async def work(self, elements: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function that does not block, called in a thread if it is about much."""
        if elements <= LOOP_ELEMENTS_MAX and self.size <= LOOP_REQUEST_BYTES_MAX:
            return function(*args, **kwargs)
        return await self.parts.bridge.call(function, *args, **kwargs)

    def require_group(self, group: str) -> None:
        """Raise without any right that covers this group: its members are nothing to others, whatever they know."""
        if not self.principal.caller.may_use_group(group):
            self.principal.require("join", "*", group)

    async def unless_gone(self, future: asyncio.Future[dict[str, object]]) -> dict[str, object] | None:
        """What a future will hold; none if the client disconnects or the server stops before."""
        event = asyncio.Event()
        future.add_done_callback(lambda _: event.set())
        with self.gone.waking(event), self.parts.bridge.draining.waking(event):
            if not (self.gone.has_begun or self.parts.bridge.draining.has_begun):
                await event.wait()
        return future.result() if future.done() and not future.cancelled() else None


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Each of very many, of which none takes long; in between other connections have their turn."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % _TURN:
            await asyncio.sleep(0)

"""What a handler is given: the parts of the server, and the call with its principal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from headrace.broker import Broker
from headrace.broker.read.topic_reader import TopicReader
from headrace.core.reports.clients import ClientIdentity
from headrace.edge.access import Gate, Leases, Principal
from headrace.edge.bridge import Bridge
from headrace.edge.draining import Draining
from headrace.edge.envelope.answer_room import AnswerRoom
from headrace.edge.envelope.envelope import Envelope
from headrace.edge.event_loop.frames import Frames
from headrace.edge.event_loop.long_poll import LoopWakeups
from headrace.protocols.cursus.errors import CursusRefusal
from headrace.protocols.cursus.messages.command import Command
from headrace.protocols.cursus.producer_numbers import ProducerEpochs
from headrace.protocols.cursus.settings import CursusSettings

if TYPE_CHECKING:
    from headrace.protocols.cursus.commands.transactions import OpenTransactions
    from headrace.protocols.cursus.streams import OpenStreams

P = ParamSpec("P")
T = TypeVar("T")

# What an element of an answer takes until it is sent.
ANSWER_ELEMENT_BYTES: Final = 400

# What a handler answers: a text, a frame, several frames, or nothing more on this connection.
CursusAnswer = str | bytes | list[str | bytes] | None


@dataclass(frozen=True, slots=True)
class CursusParts:
    """What all connections of a server share."""

    settings: CursusSettings
    bridge: Bridge
    gate: Gate
    leases: Leases
    wakeups: LoopWakeups
    envelope: Envelope
    streams: OpenStreams
    transactions: OpenTransactions
    epochs: ProducerEpochs
    # How many searches of the log are done at a time: threads are for others too.
    searches: asyncio.Semaphore
    # The partition that the next message without a key goes to, by topic.
    turns: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Negotiated:
    """What the client of a connection has asked for, and the token that it signed in with."""

    token: str | None = None
    has_structured_errors: bool = False


@dataclass(frozen=True, slots=True)
class CursusCall:
    """One request: who sent it, over which connection, and where its clients are told to connect to."""

    parts: CursusParts
    principal: Principal
    frames: Frames
    address: tuple[str, int]
    negotiated: Negotiated
    room: AnswerRoom

    @property
    def broker(self) -> Broker:
        """The broker; its calls block."""
        return self.parts.bridge.broker

    @property
    def gone(self) -> Draining:
        """Begins when the client leaves."""
        return self.frames.gone

    async def hold(self, elements: int, texts_bytes: int = 0) -> None:
        """Wait for room for an answer before it is made: so many elements, such as partitions, and texts in it."""
        await self.room.take(elements * ANSWER_ELEMENT_BYTES + 2 * texts_bytes)

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function that blocks."""
        return await self.parts.bridge.call(function, *args, **kwargs)

    def require(self, operation: str, topic: str, group: str | None = None, producer: str | None = None) -> None:
        """Raise without the right that an operation needs."""
        self.principal.require(operation, topic, group, producer)

    async def reader(self, topic: str) -> TopicReader:
        """A reader of a topic."""
        return await self.parts.bridge.reader(topic)

    def called_by(self, name: str) -> None:
        """The client, by the name of its member or producer: connections come and go."""
        self.principal.called_by("cursus", ClientIdentity(name))


def topic_of(command: Command) -> str:
    """The topic of a command."""
    return command.required("topic")


def group_of(command: Command) -> str:
    """The group of a command; clients that name none have the same one."""
    group = command.get("group")
    return "default-group" if group in ("", "-") else group


def partition_of(command: Command, reader: TopicReader) -> int:
    """The partition of a command, which exists."""
    partition = command.number("partition")
    check_partition(reader, partition)
    return partition


def check_partition(reader: TopicReader, partition: int) -> None:
    """Raise for a partition that does not exist."""
    if not 0 <= partition < reader.partitions:
        raise CursusRefusal("partition_not_found", partition=partition)

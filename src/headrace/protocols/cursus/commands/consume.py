"""CONSUME and STREAM: messages of one partition, asked for or pushed.

Reading begins at the offset that the client asks for, or at what its group has committed where that is further: so
nothing that was committed is read again, and a client that has read on since is not given the same twice. A position
that retention has passed is told as such, upon which clients apply their reset policy.

A client that names a generation must be the owner of the partition in it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from headrace.broker import Broker
from headrace.broker.read.topic_reader import TopicReader
from headrace.core.errors import GroupNotFound, NotFound, OffsetOutOfRange
from headrace.core.limits import FETCH_MESSAGES_MAX
from headrace.edge.event_loop.long_poll import wait
from headrace.protocols.cursus.call import CursusAnswer, CursusCall, group_of, partition_of
from headrace.protocols.cursus.commands.groups import check_member
from headrace.protocols.cursus.errors import CursusRefusal, Quoted, refusal_of
from headrace.protocols.cursus.messages.command import Command
from headrace.protocols.cursus.messages.outgoing import Encoded, batch_of, encoded
from headrace.protocols.cursus.streams import PartitionStream

MESSAGES_DEFAULT: Final = 8192
_WAIT_SECONDS_MAX: Final = 60.0
_ISOLATIONS: Final = frozenset({"", "read_committed", "read_uncommitted"})
_RESETS: Final = {"earliest": 0, "latest": 1}


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """What a client reads: a partition of a topic, as a member of a group if it names a generation."""

    reader: TopicReader
    topic: str
    partition: int
    group: str
    member: str
    generation: int | None
    asked: int | None
    reset: str
    messages_max: int

    def begin(self, broker: Broker) -> int:
        """The first offset to read; raises if the client may not read, or that offset does not exist. Blocks."""
        if self.generation is not None:
            check_member(broker, self.topic, self.group, self.member, self.partition, self.generation)
        start, end = self.reader.offsets().by_partition()[self.partition]
        try:
            committed = broker.committed(self.topic, self.group).get(self.partition)
        except GroupNotFound:
            committed = None
        offset = max((each for each in (committed, self.asked) if each is not None), default=start)
        if start <= offset <= end:
            return offset
        if self.reset in _RESETS:
            return (start, end)[_RESETS[self.reset]]
        raise OffsetOutOfRange(self.reader.name, self.partition, offset, start, end)

    def read(self, offset: int, bytes_max: int) -> Encoded | None:
        """The next messages as a frame, and where to read on; None if there are none. Blocks."""
        offsets = self.reader.offsets()
        offset = offsets.readable(self.partition, offset)
        if offset >= offsets.end[self.partition]:
            return None
        batches = self.reader.read({self.partition: offset}, self.messages_max, bytes_max)
        return encoded(self.reader.name, self.partition, batches, bytes_max)


async def consume(call: CursusCall, command: Command) -> CursusAnswer:
    """Messages from an offset on; without any, after a while, a batch of none."""
    if not all(map(command.get, ("topic", "partition", "offset", "member"))):
        raise CursusRefusal("invalid_consume_syntax")
    reading = await _reading(call, command)
    offset = await call.work(reading.begin, call.broker)
    wait_seconds = min(command.number("wait_ms", default=0) / 1000, _WAIT_SECONDS_MAX)
    bytes_max = call.parts.settings.fetch_bytes_max
    await call.room.take(bytes_max)
    found = await call.work(reading.read, offset, bytes_max)
    if found is None and wait_seconds > 0:
        call.room.shrink()
        await _something(call, reading, offset, wait_seconds)
        await call.room.take(bytes_max)
        found = await call.work(reading.read, offset, bytes_max)
    if found is None:
        call.room.shrink()
        return batch_of(reading.reader.name, reading.partition)
    call.room.shrink(len(found[0]))
    return found[0]


async def stream(call: CursusCall, command: Command) -> CursusAnswer:
    """Push messages until one side ends it; the connection ends with it."""
    if not (command.get("topic") and command.get("partition") and command.get("group")):
        raise CursusRefusal("invalid_stream_syntax")
    reading = await _reading(call, command)
    offset = await call.work(reading.begin, call.broker)
    with call.principal.stream():
        await PartitionStream(call, reading, offset).run()
    return None


async def _reading(call: CursusCall, command: Command) -> PartitionReading:
    isolation = command.get("isolation").lower()
    if isolation not in _ISOLATIONS:
        raise CursusRefusal("invalid_isolation", isolation=isolation[:100])
    topic, group, member = command.get("topic"), group_of(command), command.get("member")
    call.require("read_as_member", topic, group)
    try:
        reader = await call.reader(topic)
        partition = partition_of(command, reader)
    except (NotFound, CursusRefusal) as error:
        raise CursusRefusal("command_failed", reason=Quoted(str(refusal_of(error)).removeprefix("ERROR: "))) from None
    generation = command.number("generation", default=-1, least=-1)
    if generation >= 0 and not member:
        raise CursusRefusal("missing_member", command=command.name)
    if generation >= 0:
        call.called_by(member)
        call.principal.joined(topic, group, member, 0.0)
    return PartitionReading(
        reader,
        topic,
        partition,
        group,
        member,
        generation if generation >= 0 else None,
        command.number("offset") if command.get("offset") else None,
        command.get("autoOffsetReset").lower(),
        min(max(1, command.number("batch", default=MESSAGES_DEFAULT)), FETCH_MESSAGES_MAX),
    )


async def _something(call: CursusCall, reading: PartitionReading, offset: int, seconds: float) -> None:
    """Wait until there is something to read, the client leaves or the server stops."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    with (
        call.principal.stream(),
        call.parts.wakeups.on(reading.reader, reading.partition) as event,
        call.gone.waking(event),
    ):
        while not (call.gone.has_begun or call.parts.bridge.draining.has_begun):
            if reading.reader.is_behind({reading.partition: offset}) or not await wait(event, until - loop.time()):
                return
            event.clear()

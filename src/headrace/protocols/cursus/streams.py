"""Streams: messages that are pushed as they are written, each partition over a connection of its own.

    run ─► read ─► push ─► … ─► nothing left ─► wait: a commit, a change of the group, a newer stream, the client's end
                                            └─► a frame of no bytes now and then

A stream ends with a frame that says why and where to read on. Of two streams for the same topic, partition and group
the older one ends. A member that loses its partition, or whose group is moved, loses its stream; one whose token is
revoked too. What a client has not received is one frame and what its connection takes; it has `send_seconds_max` for
that. A client whose machine has gone silent is found by TCP, which waits for an answer to each frame as long.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from headrace.broker import Broker
from headrace.core.errors import AccessDenied, HeadraceError, MessagesLost, OffsetOutOfRange
from headrace.edge.access import Lease
from headrace.edge.envelope.byte_budget import HeldBytes
from headrace.edge.envelope.connections import end_if_silent
from headrace.edge.event_loop.frames import SIZE
from headrace.edge.event_loop.long_poll import wait
from headrace.protocols.cursus.call import CursusCall
from headrace.protocols.cursus.errors import quoted

if TYPE_CHECKING:
    from headrace.protocols.cursus.commands.consume import PartitionReading

_KEEPALIVE: Final = SIZE.pack(0)
# A group of a shared store may have been changed by another server that could not tell.
_LOOK_SECONDS: Final = 10.0

StreamKey = tuple[int, int, str]


class OpenStreams:
    """The streams of a server by topic, partition and group. Belongs to the event loop."""

    def __init__(self) -> None:
        self._streams: dict[StreamKey, PartitionStream] = {}

    def put(self, key: StreamKey, stream: PartitionStream) -> None:
        """A stream begins; an older one ends."""
        older = self._streams.get(key)
        self._streams[key] = stream
        if older is not None:
            older.replace()

    def remove(self, key: StreamKey, stream: PartitionStream) -> None:
        """A stream has ended."""
        if self._streams.get(key) is stream:
            del self._streams[key]


class PartitionStream:
    """One stream. Belongs to the event loop."""

    def __init__(self, call: CursusCall, reading: PartitionReading, offset: int) -> None:
        self._call = call
        self._reading = reading
        self._offset = offset
        self._event = asyncio.Event()
        self._is_replaced = False
        self._loop = asyncio.get_running_loop()
        # When the membership is looked at in any case, and in which generation it was found good.
        self._look_at = self._loop.time() + _LOOK_SECONDS
        self._generation = reading.generation

    def replace(self) -> None:
        """A newer stream reads the same."""
        self._is_replaced = True
        self._event.set()

    async def run(self) -> None:
        """Push until it ends, and say why it did, if the client is still there."""
        call, reading = self._call, self._reading
        key = reading.reader.topic_id, reading.partition, reading.group
        lease = call.principal.lease("read_as_member", reading.topic, reading.group)
        end_if_silent(call.frames.extra("socket"), call.parts.settings.send_seconds_max)
        call.parts.streams.put(key, self)
        try:
            with ExitStack() as stack:
                stack.enter_context(call.parts.wakeups.setting(self._event, reading.reader, reading.partition))
                stack.enter_context(call.gone.waking(self._event))
                stack.enter_context(call.parts.leases.waking(lease, self._event))
                ending = await self._push(lease)
            with suppress(ConnectionError):
                await self._say(ending)
        finally:
            call.parts.streams.remove(key, self)

    async def _push(self, lease: Lease) -> str:
        """Push until it ends; why."""
        call, reader = self._call, self._reading.reader
        place = self._reading.partition
        while True:
            self._event.clear()
            if self._is_replaced:
                return "reason=replaced"
            if call.parts.bridge.draining.has_begun or call.gone.has_begun:
                return "reason=stopped"
            self._note()
            try:
                lease.check()
                if not await self._is_owner():
                    return "reason=removed"
                if reader.is_behind({place: self._offset}) and await self._push_some():
                    continue
            except (OffsetOutOfRange, MessagesLost):
                return await self._out_of_range()
            except AccessDenied:
                return "reason=removed"
            except HeadraceError:
                return "reason=error"
            if not await wait(self._event, call.parts.settings.keepalive_seconds):
                await call.frames.write(_KEEPALIVE)

    def _note(self) -> None:
        """Who reads, for people: its client waits for messages."""
        reading = self._reading
        if reading.generation is not None:
            self._call.principal.joined(reading.topic, reading.group, reading.member, 0.0)

    async def _is_owner(self) -> bool:
        """Whether the partition is still the member's, and the group was not moved since it joined."""
        reading, now = self._reading, self._loop.time()
        if reading.generation is None or self._generation is None:
            return True
        if now < self._look_at and not reading.reader.has_moved(reading.group, self._generation):
            return True
        self._look_at = now + _LOOK_SECONDS
        found = await self._call.work(_generation_of_owner, self._call.broker, reading)
        if found is not None:
            self._generation = found
        return found is not None

    async def _push_some(self) -> bool:
        """Push a frame, if there is anything to read."""
        call = self._call
        answers = HeldBytes(call.parts.envelope.answers, call.principal.name)
        bytes_max = call.parts.settings.fetch_bytes_max
        try:
            await answers.take(bytes_max)
            found = await call.work(self._reading.read, self._offset, bytes_max)
            if found is None:
                return False
            data, after = found
            answers.shrink(len(data))
            await call.frames.write(SIZE.pack(len(data)) + data)
            self._offset = after
        finally:
            answers.shrink()
        call.parts.gate.limits.traffic["cursus"].bytes_out += len(data)
        return True

    async def _out_of_range(self) -> str:
        bounds = (await self._call.work(self._reading.reader.offsets)).by_partition()
        earliest, latest = bounds[self._reading.partition]
        return f"reason=offset_out_of_range requested={self._offset} earliest={earliest} latest={latest}"

    async def _say(self, ending: str) -> None:
        frame = f"STREAM_CONTROL type=CLOSE {ending} offset={quoted(self._offset)}".encode()
        await self._call.frames.write(SIZE.pack(len(frame)) + frame)


def _generation_of_owner(broker: Broker, reading: PartitionReading) -> int | None:
    """The present generation, if the member owns the partition, or None. It is heard by its heartbeats alone."""
    found = broker.describe_group(reading.topic, reading.group)
    assert reading.generation is not None
    is_owner = reading.partition in found.members.get(reading.member, ())
    return found.generation if is_owner and found.seek_generation <= reading.generation else None

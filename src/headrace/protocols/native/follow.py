"""A follower: it is sent what is written as it is written, as far as it has said that it takes more.

    deliver   a task: what was handed, or else what the log has, then a wait for more
    grant     the task of the connection: the client takes more

What one look at the log may bring is small here: a follower that is further behind is told to catch up over Flight,
where large batches go out without passing an event loop. One that takes nothing costs a bounded feed and no thread.
What is sent to one that does not read counts as an answer that was not received, and ends its connection after a while.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pyarrow as pa

from headrace.broker.read.feed import Feed
from headrace.core.messages import content_bytes
from headrace.edge.access import Lease, Principal
from headrace.edge.envelope.answer_room import AnswerRoom
from headrace.edge.event_loop.frames import Frames
from headrace.edge.following import Follower
from headrace.edge.limits import Traffic
from headrace.protocols.native.errors import refusal
from headrace.protocols.native.parts import NativeParts
from headrace.wire import native
from headrace.wire.tickets import Follow

# What one look at the log brings at most; from half of it on a follower is behind.
LOOK_BYTES: Final = 256 << 10
_MESSAGE_BYTES: Final = 64


class FrameFollow:
    """One stream to a follower. Belongs to the event loop."""

    def __init__(
        self,
        parts: NativeParts,
        command: Follow,
        credit: int,
        principal: Principal,
        lease: Lease,
        frames: Frames,
        traffic: Traffic,
    ) -> None:
        self._parts = parts
        self._command = command
        self._credit = credit
        self._principal = principal
        self._lease = lease
        self._frames = frames
        self._traffic = traffic
        self._room = AnswerRoom(parts.envelope.answers, principal.name)
        # There may be more to send, or the right has ended; the client takes more.
        self._changed = asyncio.Event()
        self._granted = asyncio.Event()

    def grant(self, count: int) -> None:
        """The client takes so many bytes more."""
        self._credit = min(self._credit + count, native.CREDIT_BYTES_MAX)
        self._granted.set()

    async def deliver(self) -> None:
        """Send until the task is cancelled; an error, or that there is too much to send, is the last that is sent."""
        try:
            with self._principal.stream():
                await self._deliver()
        except ConnectionError:
            pass
        except Exception as error:
            await self._write(refusal(error))
        finally:
            self._room.shrink()

    async def _deliver(self) -> None:
        parts = self._parts
        reader = await parts.bridge.reader(self._command.topic)
        follower = Follower(reader, self._command)
        await parts.bridge.call(follower.check)
        with (
            parts.feeds.following(reader, self._changed.set) as feed,
            parts.leases.waking(self._lease, self._changed),
        ):
            while True:
                self._changed.clear()
                await parts.leases.keep(self._lease)
                batches = feed.handed(follower.positions())
                if batches is None:
                    batches = await parts.bridge.call(self._look, feed, follower)
                if batches is None:
                    await self._write(native.frame(native.BEHIND))
                    return
                for batch in follower.passed_on(batches):
                    await self._send(batch)
                if not batches:
                    await self._changed.wait()

    def _look(self, feed: Feed, follower: Follower) -> list[pa.RecordBatch] | None:
        """A look at the log, in a thread; None if there is too much."""
        bytes_max = min(self._command.max_bytes, LOOK_BYTES)
        batches = feed.read(follower.positions(), follower.messages_max, bytes_max)
        size = sum(content_bytes(batch) + _MESSAGE_BYTES * batch.num_rows for batch in batches)
        return batches if size < LOOK_BYTES // 2 else None

    async def _send(self, batch: pa.RecordBatch) -> None:
        if self._credit <= 0:
            while self._credit <= 0:
                self._granted.clear()
                await self._granted.wait()
            await self._parts.leases.keep(self._lease)
        data = native.frame(native.ROWS, batch.serialize().to_pybytes())
        self._credit -= len(data)
        await self._room.take(len(data))
        await self._write(data)
        self._room.shrink()

    async def _write(self, data: bytes) -> None:
        self._traffic.bytes_out += len(data)
        self._frames.write_soon(data)
        if self._frames.is_received:
            return
        # Not by the deadline of the connection, which is of what arrives meanwhile.
        try:
            async with asyncio.timeout(self._parts.settings.send_seconds_max):
                await self._frames.received()
        except TimeoutError:
            self._frames.abort("it did not receive what it follows in time")

"""The bytes of one connection: what arrives becomes frames, what is written is flushed, and nothing takes too long.

A frame is a length in four bytes, then that many bytes. The length is checked before the rest is read. Bytes count
against the caller's share and the server's budget from when they arrive until their request is answered
(`edge.envelope`); without room for them nothing is read. No more is read ahead than `ahead_bytes` beyond what is waited
for, so that TCP slows down a client that sends faster than it is served.

Waiting needs no timer of its own: a connection has one deadline, for what it waits for just now, and the server looks
at the deadlines of all connections a few times a second (`check_deadline`). Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Callable
from typing import Any, Final, cast

from headrace.edge.draining import Draining
from headrace.edge.envelope.envelope import Envelope
from headrace.edge.envelope.received import Receiver
from headrace.edge.settings import PortSettings

# The length before every frame.
SIZE: Final = struct.Struct(">i")
# What is read ahead of the frame that is waited for, until the connection allows more.
AHEAD_BYTES: Final = 64 << 10
# A larger frame is the buffer that it arrived in: a copy of 64 MiB would hold the event loop, and take as much again.
_COPIED_MAX: Final = 1 << 20
_ROOM: Final = "limits.requests_bytes_max"
# A connection that does not say who it is ends after this time.
SIGN_IN_SECONDS: Final = 30.0
# While others wait for the room that the part of a request takes, at least so much more of it must come in this time.
_PROGRESS_BYTES: Final = 64 << 10
_PROGRESS_SECONDS: Final = 2.0

Frame = bytes | bytearray


class Frames(asyncio.Protocol):
    """One connection. `gone` begins when the client leaves, or nothing more can be written to it."""

    def __init__(
        self,
        protocol: str,
        settings: PortSettings,
        envelope: Envelope,
        connected: Callable[[Frames], None],
    ) -> None:
        self._protocol = protocol
        self.gone = Draining()
        self.host = ""
        self.ahead_bytes = AHEAD_BYTES
        self._settings = settings
        self._envelope = envelope
        self._connected = connected
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._transport: asyncio.Transport
        # What has arrived and is not answered yet, whose it is, and how much arrived in all.
        self._received: Receiver
        self._bytes = 0
        self._is_paused = False
        self._awaits_room = False
        self._is_over = False
        # How many bytes are waited for, and who is woken by them.
        self._wanted = 0
        self._arrival: asyncio.Future[None] | None = None
        # Given what arrives while a frame is waited for; if it takes it as one, nobody is woken until it is done.
        self.shortcut: Callable[[bytes], bool] | None = None
        self._is_in_shortcut = False
        # How long the next frame has waited for its answer already.
        self.waited_seconds = 0.0
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._deadline = math.inf
        self._reason = ""
        self._sign_in_deadline = self._loop.time() + SIGN_IN_SECONDS
        # When it was last found that enough arrives, and how much had by then.
        self._progress = 0.0, 0

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        self._received = self._envelope.strangers.receiver(self.host, self._resume)
        self._connected(self)

    def data_received(self, data: bytes) -> None:
        """More bytes arrived."""
        if self.shortcut is not None and self._can_take_shortcut() and self.shortcut(data):
            self._is_in_shortcut = True
            self._deadline = math.inf
            return
        self._buffer += data
        self._bytes += len(data)
        has_room = self._received.add(len(data))
        is_enough = len(self._buffer) >= self._wanted
        if is_enough and not self._is_in_shortcut:
            self._wake()
        if not has_room or (is_enough and len(self._buffer) >= self._wanted + self.ahead_bytes):
            self._pause()
            if not is_enough:
                self._await_room()

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _await_room(self) -> None:
        """Read no more until others have made room."""
        if not self._awaits_room:
            self._awaits_room = True
            seconds = self._settings.room_seconds_max
            self._begin_wait(seconds, f"there was no room for its request for {seconds:g} s ({_ROOM})")
            self._received.wait()

    def _resume(self) -> None:
        """There is room for more, or the rest of a request may arrive in any case."""
        self._awaits_room = False
        self._begin_request()
        self._read_on()

    def _read_on(self) -> None:
        if self._is_paused and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """The client sends nothing more; it may still read, if the connection is not encrypted."""
        self.drain()
        return self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, _: Exception | None) -> None:
        """Nothing more can be read or written."""
        self.drain()
        self._can_write.set()
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        """The client does not read what is written."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """It reads again."""
        self._can_write.set()

    def extra(self, name: str) -> Any:
        """What the transport knows of the connection."""
        return self._transport.get_extra_info(name)

    # The shortcut

    def _can_take_shortcut(self) -> bool:
        """Whether somebody waits for a frame, of which nothing has arrived, and all answers are sent."""
        is_waiting = self._wanted == SIZE.size and not self._is_over and not self._is_in_shortcut
        return is_waiting and not self._buffer and self._can_write.is_set()

    def end_shortcut(self, answer: bytes) -> None:
        """Write the answer to the frame that was taken, if its client is still there."""
        if not self._transport.is_closing():
            self._transport.write(answer)
        self._begin_wait(self._settings.idle_seconds_max, "")
        self._leave_shortcut()

    def give_back(self, frame: bytes, waited_seconds: float) -> None:
        """Have the frame that was taken, with its length before it, read as if it had arrived now."""
        self._received.add(len(frame))
        self._buffer[:0] = frame
        self.waited_seconds = waited_seconds
        self._leave_shortcut()

    def _leave_shortcut(self) -> None:
        self._is_in_shortcut = False
        if self._buffer:
            self._wake()

    # Reading

    def stop(self) -> None:
        """Let nobody wait for more frames."""
        self._is_over = True
        self._wake()

    def drain(self) -> None:
        """The same, and end what waits for the client's sake: long polls, and joins of groups."""
        self.stop()
        self.gone.begin()

    async def size(self) -> int | None:
        """The length of the next frame; none if there is none."""
        if len(self._buffer) < SIZE.size:
            self._begin_wait(self._settings.idle_seconds_max, "")
            if not await self._arrived(SIZE.size):
                return None
        return int(SIZE.unpack_from(self._buffer)[0])

    async def frame(self, size: int) -> Frame | None:
        """The next frame, whose length is acceptable; none if it is cut off. It holds room until it is released."""
        end = SIZE.size + size
        if len(self._buffer) < end:
            self._begin_request()
            if not await self._arrived(end):
                return None
        return self._cut(end)

    def _begin_request(self) -> None:
        seconds = self._settings.request_seconds_max
        self._begin_wait(seconds, f"its request took more than {seconds:g} s to arrive")

    def peek(self, length: int) -> bytes | None:
        """The first bytes of the next frame, if all of it has arrived and it is small enough to be read at once."""
        if len(self._buffer) < SIZE.size:
            return None
        (size,) = SIZE.unpack_from(self._buffer)
        if not length <= size <= min(len(self._buffer) - SIZE.size, self._settings.request_bytes_max):
            return None
        return bytes(self._buffer[SIZE.size : SIZE.size + length])

    def ready(self) -> Frame:
        """The next frame, of which `peek` has shown the beginning."""
        (size,) = SIZE.unpack_from(self._buffer)
        return self._cut(SIZE.size + size)

    def _cut(self, end: int) -> Frame:
        if end > _COPIED_MAX:
            frame, self._buffer = self._buffer, self._buffer[end:]
            # This moves nothing: what is left stays where it is.
            del frame[end:], frame[: SIZE.size]
            return frame
        with memoryview(self._buffer) as view:
            copied = bytes(view[SIZE.size : end])
        del self._buffer[:end]
        return copied

    def release(self, size: int, frames: int = 1) -> None:
        """So many bytes of frames, in so many of them, take no memory any more."""
        self._received.release(size + frames * SIZE.size)

    def belong_to(self, caller: str) -> None:
        """The connection is a caller's from now on."""
        self._sign_in_deadline = math.inf
        self._received.move(self._envelope.received, caller)

    async def _arrived(self, count: int) -> bool:
        """Wait until so many bytes have arrived; whether they have."""
        self._wanted = count
        self._progress = self._loop.time(), self._bytes
        if len(self._buffer) < count:
            if self._received.has_room() or not self._buffer:
                self._read_on()
            else:
                self._await_room()
        while len(self._buffer) < count and not self._is_over:
            self._arrival = self._loop.create_future()
            await self._arrival
        self._wanted = 0
        self._deadline = math.inf
        return len(self._buffer) >= count

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    # Writing

    @property
    def can_write(self) -> bool:
        """Whether the client reads what it is sent, so that writing does not wait."""
        return self._can_write.is_set()

    async def write(self, data: bytes) -> None:
        """Write an answer; waits while the client does not read."""
        if self._transport.is_closing():
            raise ConnectionResetError("the client has left")
        self._transport.write(data)
        await self.received()

    def write_soon(self, data: bytes) -> None:
        """Write an answer without waiting, or drop it if the client has left; `received` waits before more is made."""
        if not self._transport.is_closing():
            self._transport.write(data)

    @property
    def is_received(self) -> bool:
        """Whether the client reads what is written."""
        return self._can_write.is_set()

    async def received(self) -> None:
        """Wait while the client does not read."""
        if not self._can_write.is_set():
            self._begin_wait(self._settings.send_seconds_max, "it did not receive its answer in time")
            await self._can_write.wait()
            self._deadline = math.inf

    def abort(self, reason: str = "") -> None:
        """End the connection at once; a reason is written to the log."""
        if reason:
            self._envelope.closed.warn(
                f"the {self._protocol.capitalize()} connection of {self.host} was closed: {reason}"
            )
        self._deadline = self._sign_in_deadline = math.inf
        self._transport.abort()

    async def close(self) -> None:
        """End the connection, once what was written has been sent, if the client reads it in time."""
        self._begin_wait(self._settings.send_seconds_max, "it did not receive its answer in time")
        self._transport.close()
        await self._closed
        self._received.close()

    # Time

    def _begin_wait(self, seconds: float, reason: str) -> None:
        self._deadline, self._reason = self._loop.time() + seconds, reason

    def check_deadline(self, now: float) -> None:
        """End the connection if it has waited too long, or others wait for room that it takes to no purpose."""
        if now >= self._deadline:
            self.abort(self._reason)
        elif now >= self._sign_in_deadline:
            self.abort(f"it did not sign in within {SIGN_IN_SECONDS:g} s")
        elif not self._makes_progress(now):
            self.abort(f"others wait for room, and too little of its request arrived ({_ROOM})")

    def _makes_progress(self, now: float) -> bool:
        since, before = self._progress
        is_part = len(self._buffer) < self._wanted and not self._awaits_room
        if not is_part or not self._buffer or not self._received.is_wanted():
            self._progress = now, self._bytes
        elif now - since >= _PROGRESS_SECONDS:
            if self._bytes - before < _PROGRESS_BYTES:
                return False
            self._progress = now, self._bytes
        return True

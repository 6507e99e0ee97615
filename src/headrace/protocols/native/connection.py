"""One connection: a client says who it is, then opens uploads, one after another, or follows.

Before a caller is known only a small greeting is read. Belongs to the event loop.
"""

from __future__ import annotations

import asyncio

import msgspec

from headrace.core.errors import Closed, HeadraceError, InvalidInput
from headrace.core.limits import TICKET_BYTES_MAX
from headrace.core.reports.clients import IDENTITY_CHARACTERS_MAX
from headrace.edge.access import Principal
from headrace.edge.envelope.connections import ConnectionPlace
from headrace.edge.event_loop.frame_connection import EndConnection, FrameConnection
from headrace.edge.event_loop.frames import Frame, Frames
from headrace.protocols.native.errors import refusal
from headrace.protocols.native.follow import FrameFollow
from headrace.protocols.native.parts import NativeParts
from headrace.protocols.native.upload import FrameUpload
from headrace.wire import native, tickets


class NativeConnection(FrameConnection[NativeParts]):
    """One connection of a client."""

    protocol = "native"
    # As much as an upload takes ahead of its commits.
    ahead_bytes = 256 << 10

    def __init__(self, parts: NativeParts, frames: Frames, place: ConnectionPlace) -> None:
        super().__init__(parts, frames, place)
        self._said_token: str | None = None
        self._identity = ""
        self._is_following = False

    @property
    def _token(self) -> str | None:
        return self._said_token

    async def _serve(self) -> None:
        if not await self._greet():
            return
        while (received := await self._next()) is not None:
            kind, content = bytes(received[:1]), bytes(received[1:])
            self._frames.release(len(received))
            if kind == native.FOLLOW:
                await self._follow(content)
                break
            if kind != native.UPLOAD:
                raise EndConnection(f"it sent a frame of kind {kind!r} outside of an upload")
            await self._upload(content)
        if self._parts.bridge.draining.has_begun:
            await self._refuse(Closed("the server"))

    async def _next(self) -> Frame | None:
        received = await super()._next()
        if received is not None:
            self._traffic.bytes_in += native.SIZE.size + len(received)
        return received

    async def _frame_bytes_max(self, announced: int) -> int:
        if self._place.caller is None:
            return native.HELLO_BYTES_MAX
        return native.MORE_BYTES if self._is_following else self._parts.settings.request_bytes_max

    # Who calls

    async def _greet(self) -> bool:
        """Learn who the client is; whether it may go on."""
        received = await self._next()
        if received is None:
            return False
        try:
            if received[:1] != native.HELLO:
                raise EndConnection("it did not begin with a greeting")
            hello = native.decode_hello(bytes(received[1:]))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EndConnection(f"its greeting cannot be read: {error}") from None
        finally:
            self._frames.release(len(received))
        self._said_token, self._identity = hello.token or None, hello.identity[:IDENTITY_CHARACTERS_MAX]
        try:
            if hello.version != native.VERSION:
                raise InvalidInput("version", str(hello.version), f"this server speaks version {native.VERSION}")
            await self._principal("connect")
        except HeadraceError as error:
            await self._refuse(error)
            return False
        welcome = native.Welcome(self._parts.bridge.broker.servers.id)
        await self._write(native.frame(native.WELCOME, msgspec.json.encode(welcome)))
        return True

    async def _principal(self, operation: str) -> Principal:
        principal = await super()._principal(operation)
        self._note_client(principal, self._identity)
        return principal

    # What it does

    async def _upload(self, ticket: bytes) -> None:
        """Publish what follows, up to its end; if that cannot begin, drop it."""
        try:
            upload = await self._opened(ticket)
        except (HeadraceError, msgspec.DecodeError, UnicodeDecodeError) as error:
            await self._refuse(error)
            await self._drop()
            return
        try:
            while (received := await self._next()) is not None and received[:1] != native.END:
                if received[:1] not in (native.MESSAGE, native.BATCH):
                    raise EndConnection(f"it sent a frame of kind {bytes(received[:1])!r} inside of an upload")
                await upload.put(received)
        finally:
            # What was put in line is written, whether its client is there or not.
            await upload.wait()
        if received is None:
            return
        self._frames.release(len(received))
        await self._write(native.frame(native.DONE))

    async def _opened(self, ticket: bytes) -> FrameUpload:
        _check_ticket(ticket)
        command = tickets.decode_upload(ticket)
        if not isinstance(command, tickets.Publish):
            raise InvalidInput("ticket", tickets.name_of(command), "only `publish` is served here: use Flight")
        principal, producers = await self._principal("publish"), tickets.producers_of(command)
        for producer in producers:
            principal.require("publish", command.topic, producer=producer)
        lease = principal.lease("publish", command.topic, producers=producers)
        for producer in producers:
            principal.publishes(command.topic, producer or "")
        return FrameUpload(self._parts, command, principal, lease, self._frames, self._traffic)

    async def _follow(self, content: bytes) -> None:
        """Send what is written, until the client leaves."""
        self._is_following = True
        try:
            follow = await self._opened_follow(content)
        except (HeadraceError, msgspec.DecodeError, UnicodeDecodeError) as error:
            await self._refuse(error)
            follow = None
        delivering = None if follow is None else asyncio.create_task(follow.deliver())
        try:
            while (received := await self._next()) is not None:
                if received[:1] != native.MORE:
                    raise EndConnection(f"it sent a frame of kind {bytes(received[:1])!r} while it follows")
                credit = native.decode_credit(bytes(received[1:]))
                self._frames.release(len(received))
                if follow is not None:
                    follow.grant(credit)
        finally:
            if delivering is not None:
                delivering.cancel()
                await asyncio.gather(delivering, return_exceptions=True)

    async def _opened_follow(self, content: bytes) -> FrameFollow:
        credit, ticket = native.decode_credit(content), content[native.CREDIT.size :]
        _check_ticket(ticket)
        command = await self._parts.bridge.call(tickets.decode_read, ticket)
        if not isinstance(command, tickets.Follow):
            raise InvalidInput("ticket", tickets.name_of(command), "only `follow` is served here: use Flight")
        principal = await self._principal("follow")
        principal.require("follow", command.topic)
        lease = principal.lease("follow", command.topic)
        return FrameFollow(self._parts, command, credit, principal, lease, self._frames, self._traffic)

    async def _drop(self) -> None:
        """Drop an upload that could not begin, up to its end."""
        while (received := await self._next()) is not None:
            self._frames.release(len(received))
            if received[:1] == native.END:
                await self._write(native.frame(native.DONE))
                return

    async def _refuse(self, error: Exception) -> None:
        await self._write(refusal(error))

    async def _write(self, data: bytes) -> None:
        self._traffic.bytes_out += len(data)
        await self._frames.write(data)


def _check_ticket(ticket: bytes) -> None:
    if len(ticket) > TICKET_BYTES_MAX:
        raise InvalidInput("ticket", f"{len(ticket)} bytes", f"it has at most {TICKET_BYTES_MAX} bytes")

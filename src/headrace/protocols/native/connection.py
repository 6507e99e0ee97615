"""One connection: a client says who it is, then opens uploads, one after another.

Before a caller is known only a small greeting is read. Belongs to the event loop.
"""

from __future__ import annotations

import msgspec

from headrace.core.errors import Closed, HeadraceError, InvalidInput
from headrace.core.limits import TICKET_BYTES_MAX
from headrace.core.reports.clients import IDENTITY_CHARACTERS_MAX
from headrace.edge.access import Principal
from headrace.edge.envelope.connections import ConnectionPlace
from headrace.edge.event_loop.frame_connection import EndConnection, FrameConnection
from headrace.edge.event_loop.frames import Frame, Frames
from headrace.protocols.native.errors import refusal
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

    @property
    def _token(self) -> str | None:
        return self._said_token

    async def _serve(self) -> None:
        if not await self._greet():
            return
        while (received := await self._next()) is not None:
            if received[:1] != native.UPLOAD:
                raise EndConnection(f"it sent a frame of kind {bytes(received[:1])!r} outside of an upload")
            self._frames.release(len(received))
            await self._upload(bytes(received[1:]))
        if self._parts.bridge.draining.has_begun:
            await self._refuse(Closed("the server"))

    async def _next(self) -> Frame | None:
        received = await super()._next()
        if received is not None:
            self._traffic.bytes_in += native.SIZE.size + len(received)
        return received

    async def _frame_bytes_max(self, announced: int) -> int:
        return self._parts.settings.request_bytes_max if self._place.caller is not None else native.HELLO_BYTES_MAX

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
        if len(ticket) > TICKET_BYTES_MAX:
            raise InvalidInput("ticket", f"{len(ticket)} bytes", f"it has at most {TICKET_BYTES_MAX} bytes")
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

"""One connection: a client says who it is, then opens uploads, one after another.

Before a caller is known only a small greeting is read. What cannot be read as a frame ends the connection, with one
line in the log: its sender and this server no longer agree on where a frame begins. Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from headrace.core.errors import Closed, HeadraceError, InvalidInput, LimitExceeded
from headrace.core.limits import TICKET_BYTES_MAX
from headrace.core.reports.clients import IDENTITY_CHARACTERS_MAX
from headrace.edge.access import Principal
from headrace.edge.certificates import certificate_name
from headrace.edge.envelope.connections import ConnectionPlace
from headrace.edge.event_loop.frames import Frame, Frames
from headrace.edge.monitoring.clients import SeenClient
from headrace.protocols.native.errors import refusal
from headrace.protocols.native.parts import NativeParts
from headrace.protocols.native.upload import FrameUpload
from headrace.wire import native, tickets

_LOOK_SECONDS: Final = 0.02

logger = logging.getLogger(__name__)


class _End(Exception):
    """Ends the connection, with the reason."""


class NativeConnection:
    """One connection of a client."""

    def __init__(self, parts: NativeParts, frames: Frames, place: ConnectionPlace) -> None:
        self._parts = parts
        self._frames = frames
        self._place = place
        self._traffic = parts.gate.limits.traffic["native"]
        self._certificate_name = certificate_name(frames.extra("peercert"))
        self._token: str | None = None
        self._identity = ""
        self._client: SeenClient | None = None

    async def run(self) -> None:
        """Serve until the client leaves, sends what is no frame, or the server stops."""
        try:
            with self._traffic.connected():
                await self._serve()
        except (_End, HeadraceError) as error:
            self._parts.envelope.closed.warn(f"the native connection of {self._frames.host} was closed: {error}")
        except (ConnectionError, asyncio.CancelledError):
            pass
        except Exception:
            logger.exception("a native connection of %s failed", self._frames.host)
        finally:
            self._frames.gone.begin()
            await self._frames.close()
            self._place.leave()
            if self._client is not None:
                self._parts.gate.limits.clients.disconnected(self._client)

    async def _serve(self) -> None:
        if not await self._greet():
            return
        while (received := await self._next()) is not None:
            if received[:1] != native.UPLOAD:
                raise _End(f"it sent a frame of kind {bytes(received[:1])!r} outside of an upload")
            self._frames.release(len(received))
            await self._upload(bytes(received[1:]))
        if self._parts.bridge.draining.has_begun:
            await self._refuse(Closed("the server"))

    async def _next(self) -> Frame | None:
        """The next frame; none if the client has left, or the server stops."""
        size = await self._frames.size()
        if size is None:
            return None
        most = self._parts.settings.request_bytes_max if self._place.caller is not None else native.HELLO_BYTES_MAX
        if not 1 <= size <= most:
            raise _End(f"it announced a frame of {size} bytes: 1 to {most} are accepted")
        received = await self._frames.frame(size)
        if received is not None:
            self._traffic.bytes_in += native.SIZE.size + len(received)
        return received

    # Who calls

    async def _greet(self) -> bool:
        """Learn who the client is; whether it may go on."""
        received = await self._next()
        if received is None:
            return False
        try:
            if received[:1] != native.HELLO:
                raise _End("it did not begin with a greeting")
            hello = native.decode_hello(bytes(received[1:]))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _End(f"its greeting cannot be read: {error}") from None
        finally:
            self._frames.release(len(received))
        self._token, self._identity = hello.token or None, hello.identity[:IDENTITY_CHARACTERS_MAX]
        try:
            if hello.version != native.VERSION:
                raise InvalidInput("version", str(hello.version), f"this server speaks version {native.VERSION}")
            principal = await self._principal("connect")
            self._place.sign_in(principal.caller)
        except HeadraceError as error:
            await self._refuse(error)
            return False
        self._frames.belong_to(principal.name)
        # As much as an upload takes ahead of its commits.
        self._frames.ahead_bytes = 256 << 10
        welcome = native.Welcome(self._parts.bridge.broker.servers.id)
        await self._write(native.frame(native.WELCOME, msgspec.json.encode(welcome)))
        return True

    async def _principal(self, operation: str) -> Principal:
        """Who calls; one who is too fast waits."""
        gate = self._parts.gate
        while True:
            if gate.is_stale:
                await self._parts.leases.refresh()
            try:
                principal = gate.admit(self._token, self._frames.host, operation, self._certificate_name)
                break
            except LimitExceeded as error:
                await asyncio.sleep(max(error.retry_after_seconds, _LOOK_SECONDS))
        if gate.has_uses:
            asyncio.get_running_loop().run_in_executor(None, gate.store_uses)
        client = principal.called_by("native", self._identity)
        if client is not self._client:
            gate.limits.clients.connected(client)
            if self._client is not None:
                gate.limits.clients.disconnected(self._client)
            self._client = client
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
                    raise _End(f"it sent a frame of kind {bytes(received[:1])!r} inside of an upload")
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

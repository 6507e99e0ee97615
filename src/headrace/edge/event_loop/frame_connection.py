"""One connection of a protocol of frames: who calls, frames in order, and its end whatever happens.

    class CursusConnection(FrameConnection[CursusParts]): ...       says what a frame means
    await CursusConnection(parts, frames, place).run()

Before a caller is known only small frames are read. What cannot be read as a frame ends the connection, with one line
in the log: its sender and this server no longer agree on where a frame begins. Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from headrace.broker.access import ProvenToken
from headrace.core.errors import HeadraceError, LimitExceeded
from headrace.core.reports.clients import ClientIdentity
from headrace.core.rights import ANYONE, Caller
from headrace.edge.access import Gate, Leases, Principal
from headrace.edge.bridge import Bridge
from headrace.edge.certificates import certificate_name
from headrace.edge.envelope.connections import ConnectionPlace
from headrace.edge.envelope.envelope import Envelope
from headrace.edge.event_loop.frames import AHEAD_BYTES, Frame, Frames
from headrace.edge.monitoring.clients import SeenClient
from headrace.edge.settings import PortSettings

# What an unknown caller may send at once.
UNKNOWN_BYTES_MAX: Final = 64 << 10
_LOOK_SECONDS: Final = 0.02

logger = logging.getLogger(__name__)


class EndConnection(Exception):
    """Ends the connection, with the reason."""


class FrameParts(Protocol):
    """What all connections of a server share."""

    @property
    def settings(self) -> PortSettings: ...
    @property
    def bridge(self) -> Bridge: ...
    @property
    def gate(self) -> Gate: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def envelope(self) -> Envelope: ...


P = TypeVar("P", bound=FrameParts)


class FrameConnection(ABC, Generic[P]):
    """One connection of a client."""

    # The name of the protocol, and how much of what follows is read ahead once the caller is known.
    protocol: ClassVar[str]
    ahead_bytes: ClassVar[int] = AHEAD_BYTES
    # The least that a frame has.
    frame_bytes_min: ClassVar[int] = 1

    def __init__(self, parts: P, frames: Frames, place: ConnectionPlace) -> None:
        self._parts = parts
        self._frames = frames
        self._place = place
        self._traffic = parts.gate.limits.traffic[self.protocol]
        self._certificate_name = certificate_name(frames.extra("peercert"))
        # The client that this is a connection of.
        self._client: SeenClient | None = None

    @property
    @abstractmethod
    def _token(self) -> str | ProvenToken | None:
        """What the client has signed in with."""

    @abstractmethod
    async def _serve(self) -> None:
        """Read frames and answer them until there are no more."""

    async def _finish(self) -> None:
        """Give back what the connection holds, before it is closed."""

    async def run(self) -> None:
        """Serve until the client leaves, sends what is no frame, or the server stops."""
        try:
            with self._traffic.connected():
                await self._serve()
        except (EndConnection, HeadraceError) as error:
            self._warn(error)
        except (ConnectionError, asyncio.CancelledError):
            pass
        except Exception:
            logger.exception("a %s connection of %s failed", self.protocol.capitalize(), self._frames.host)
        finally:
            self._frames.gone.begin()
            await self._finish()
            await self._frames.close()
            self._place.leave()
            if self._client is not None:
                self._parts.gate.limits.clients.disconnected(self._client)

    def _warn(self, error: Exception) -> None:
        whose = f"the {self.protocol.capitalize()} connection of {self._frames.host}"
        self._parts.envelope.closed.warn(f"{whose} was closed: {error}")

    # Frames

    async def _next(self) -> Frame | None:
        """The next frame; none if the client has left, or the server stops."""
        size = await self._frames.size()
        if size is None:
            return None
        most = await self._frame_bytes_max(size)
        if not self.frame_bytes_min <= size <= most:
            bounds = f"{self.frame_bytes_min} to {most} are accepted"
            raise EndConnection(f"it announced a request of {size} bytes: {bounds}")
        return await self._frames.frame(size)

    async def _frame_bytes_max(self, announced: int) -> int:
        """How many bytes a frame may have; the sender of many says who it is first."""
        if announced > UNKNOWN_BYTES_MAX and self._place.caller is None:
            await self._principal("connect")
        return self._parts.settings.request_bytes_max

    # Who calls

    async def _welcome(self) -> None:
        """Where no tokens are needed, everybody is the same caller."""
        with suppress(HeadraceError):
            if self._parts.gate.is_stale:
                await self._parts.leases.refresh()
            if self._parts.gate.is_open:
                self._know(ANYONE)

    async def _principal(self, operation: str) -> Principal:
        """Who sends this request; a caller who is too fast waits."""
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
        if self._place.caller != principal.name:
            self._know(principal.caller)
        return principal

    def _know(self, caller: Caller) -> None:
        """The connection is this caller's, if it may have one more."""
        self._place.sign_in(caller)
        self._frames.belong_to(caller.name)
        self._frames.ahead_bytes = self.ahead_bytes

    def _note_client(self, principal: Principal, said: str | ClientIdentity) -> None:
        """The client that sent a request: another one if it signs in as another, or has another name."""
        client = principal.called_by(self.protocol, said)
        if client is not self._client:
            clients = self._parts.gate.limits.clients
            clients.connected(client)
            if self._client is not None:
                clients.disconnected(self._client)
            self._client = client

"""The server of the native wire: what its connections share; `FrameServer` does the rest."""

from __future__ import annotations

from functools import partial

from headrace.edge.access import Leases
from headrace.edge.bridge import Bridge
from headrace.edge.envelope.envelope import Envelope
from headrace.edge.event_loop.frame_server import FrameServer, Serve
from headrace.edge.event_loop.loop_feeds import LoopFeeds
from headrace.protocols.native.connection import NativeConnection
from headrace.protocols.native.parts import NativeParts
from headrace.protocols.native.settings import NativeSettings


class NativeServer(FrameServer[NativeSettings]):
    """The native wire over a broker, on sockets that are bound."""

    protocol = "native"

    async def open(self, bridge: Bridge, bounds: Envelope) -> Serve:
        """Make what all connections share."""
        parts = NativeParts(self.settings, bridge, self.gate, Leases(self.gate), bounds, LoopFeeds())
        return partial(NativeConnection, parts)

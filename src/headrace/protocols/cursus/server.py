"""The cursus server: what its connections share; `FrameServer` does the rest."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from headrace.edge.access import Leases
from headrace.edge.bridge import Bridge
from headrace.edge.envelope.envelope import Envelope
from headrace.edge.event_loop.frame_server import FrameServer, Serve
from headrace.edge.event_loop.long_poll import LoopWakeups
from headrace.protocols.cursus.call import CursusParts
from headrace.protocols.cursus.commands.transactions import OpenTransactions
from headrace.protocols.cursus.connection import CursusConnection
from headrace.protocols.cursus.producer_numbers import ProducerEpochs
from headrace.protocols.cursus.settings import CursusSettings
from headrace.protocols.cursus.streams import OpenStreams

_SEARCHES: Final = 2


class CursusServer(FrameServer[CursusSettings]):
    """cursus over a broker, on sockets that are bound."""

    protocol = "cursus"

    async def open(self, bridge: Bridge, bounds: Envelope) -> Serve:
        """Make what all connections share."""
        parts = CursusParts(
            self.settings,
            bridge,
            self.gate,
            Leases(self.gate),
            LoopWakeups(bridge),
            bounds,
            OpenStreams(),
            OpenTransactions(),
            ProducerEpochs(),
            asyncio.Semaphore(_SEARCHES),
        )
        return partial(CursusConnection, parts)

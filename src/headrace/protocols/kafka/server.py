"""The Kafka server: what its connections share, and the coordinator of groups; `FrameServer` does the rest."""

from __future__ import annotations

from functools import partial

from headrace.edge.access import Leases
from headrace.edge.bridge import Bridge
from headrace.edge.envelope.envelope import Envelope
from headrace.edge.event_loop.frame_server import FrameServer, Serve
from headrace.edge.event_loop.long_poll import LoopWakeups
from headrace.protocols.kafka.apis.call import Parts
from headrace.protocols.kafka.apis.records.fetch_sessions import FetchSessions
from headrace.protocols.kafka.connection import KafkaConnection
from headrace.protocols.kafka.coordinator.coordinator import Coordinator
from headrace.protocols.kafka.idempotence import WrittenBatches
from headrace.protocols.kafka.nodes import Nodes
from headrace.protocols.kafka.settings import KafkaSettings
from headrace.protocols.kafka.ticks import Ticks


class KafkaServer(FrameServer[KafkaSettings]):
    """Kafka over a broker, on sockets that are bound."""

    protocol = "kafka"

    async def open(self, bridge: Bridge, bounds: Envelope) -> Serve:
        """Make what all connections share."""
        nodes = Nodes(bridge)
        await nodes.refresh()
        self._coordinator = Coordinator(bridge, self.settings.rebalance_delay_seconds)
        parts = Parts(
            self.settings,
            bridge,
            self.gate,
            Leases(self.gate),
            LoopWakeups(bridge),
            bounds,
            self._coordinator,
            WrittenBatches(bridge),
            nodes,
            FetchSessions(),
            Ticks(),
        )
        self.keep(nodes.keep_fresh())
        return partial(KafkaConnection, parts)

    def drain(self) -> None:
        """Let joins of groups go."""
        self._coordinator.close()

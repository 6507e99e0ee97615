"""What all connections of the native wire share."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.edge.access import Gate, Leases
from headrace.edge.bridge import Bridge
from headrace.edge.envelope.envelope import Envelope
from headrace.edge.event_loop.loop_feeds import LoopFeeds
from headrace.protocols.native.settings import NativeSettings


@dataclass(frozen=True, slots=True)
class NativeParts:
    """The broker, who may call, and the bounds."""

    settings: NativeSettings
    bridge: Bridge
    gate: Gate
    leases: Leases
    envelope: Envelope
    feeds: LoopFeeds

"""The envelope of one protocol: it makes one, and passes everything through it.

    connections    a place for each connection, a stranger's at first (`connections`)
    strangers      bytes that arrived from those who have not said who they are, a share for each address
    received       bytes that arrived from callers and are not served yet, a share for each (`received`)
    parsed         what large requests take beside their bytes once they are parsed, until they are answered
    decompressed   what requests take once they are decompressed, until it is written (`byte_budget`)
    answers        what answers take from before they are made until they are sent (`byte_budget`)
    closed         why connections were closed, in few lines of the log (`repeated_warnings`)

So what one caller sends or does not read leaves room and places to all others, whichever protocol it speaks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from headrace.edge.envelope.byte_budget import ByteBudget
from headrace.edge.envelope.connections import Connections
from headrace.edge.envelope.received import ReceivedBytes
from headrace.edge.envelope.repeated_warnings import RepeatedWarnings
from headrace.edge.limits import Limits, Slots
from headrace.edge.settings import OptionalPortSettings

# What all strangers and those of one address may send before they sign in.
STRANGERS_BYTES_MAX: Final = 16 << 20
_ADDRESS_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Envelope:
    """The limits of one protocol of one server."""

    connections: Connections
    strangers: ReceivedBytes
    received: ReceivedBytes
    parsed: ByteBudget
    decompressed: ByteBudget
    answers: ByteBudget
    closed: RepeatedWarnings

    def has_given_back(self) -> bool:
        """Whether much was held at once and is gone, so that the allocator has memory to give back."""
        budgets = (self.received, self.parsed, self.decompressed, self.answers)
        # Each is looked at: a peak that is over counts no more.
        over = [budget.peak.is_over(budget.taken) for budget in budgets]
        return any(over)


def envelope(protocol: str, settings: OptionalPortSettings, limits: Limits, logger: logging.Logger) -> Envelope:
    """The envelope of a protocol; each caller gets a part of a budget."""
    requests, room_seconds = "limits.requests_bytes_max", settings.room_seconds_max
    decompressed_max = max(settings.requests_bytes_max, settings.records_bytes_max)
    decompressed_share = max(decompressed_max // 2, settings.records_bytes_max)
    answers_share = max(settings.answers_bytes_max // 4, settings.fetch_bytes_max)
    addresses = Slots("bytes before sign-in", requests, _ADDRESS_BYTES_MAX, lambda _address, _setting: None)
    return Envelope(
        Connections(settings.connections_max),
        ReceivedBytes(STRANGERS_BYTES_MAX, addresses),
        ReceivedBytes(settings.requests_bytes_max, limits.bodies),
        ByteBudget(settings.requests_bytes_max, room_seconds, requests, settings.requests_bytes_max // 2),
        ByteBudget(decompressed_max, room_seconds, requests, decompressed_share),
        ByteBudget(settings.answers_bytes_max, room_seconds, "limits.answers_bytes_max", answers_share),
        RepeatedWarnings(logger, f"connections of {protocol} clients were closed"),
    )

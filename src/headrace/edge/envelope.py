"""The envelope around every call of a protocol: what connections, requests and answers may hold, together and each.

A protocol makes one `Envelope` and passes everything through it:

    connections    a place for each connection, a stranger's at first (`connections`)
    strangers      bytes that arrived from those who have not said who they are, a share for each address
    received       bytes that arrived from callers and are not served yet, a share for each (`received`)
    decompressed   what requests take once they are decompressed, until it is written (`byte_budget`)
    answers        what answers take from before they are made until they are sent (`byte_budget`)

So what one caller sends or does not read leaves room and places to all others, whichever protocol it speaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.edge.byte_budget import ByteBudget
from headrace.edge.connections import Connections
from headrace.edge.limits import Limits, Slots
from headrace.edge.received import ReceivedBytes

# What all strangers and those of one address may send before they sign in.
STRANGERS_BYTES_MAX: Final = 16 << 20
_ADDRESS_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Envelope:
    """The limits of one protocol of one server."""

    connections: Connections
    strangers: ReceivedBytes
    received: ReceivedBytes
    decompressed: ByteBudget
    answers: ByteBudget


def envelope(
    protocol: str,
    limits: Limits,
    *,
    connections_max: int,
    requests_bytes_max: int,
    records_bytes_max: int,
    answers_bytes_max: int,
    answer_bytes_max: int,
    room_seconds_max: float,
) -> Envelope:
    """The envelope of a protocol, whose settings have these names behind its own; each caller gets at most a half."""
    requests = f"{protocol}.requests_bytes_max"
    decompressed_max = max(requests_bytes_max, records_bytes_max)
    addresses = Slots("bytes before sign-in", requests, _ADDRESS_BYTES_MAX, lambda _address, _setting: None)
    return Envelope(
        Connections(connections_max, f"{protocol}.connections_max"),
        ReceivedBytes(STRANGERS_BYTES_MAX, addresses),
        ReceivedBytes(requests_bytes_max, limits.bodies),
        ByteBudget(decompressed_max, room_seconds_max, requests, max(decompressed_max // 2, records_bytes_max)),
        ByteBudget(
            answers_bytes_max,
            room_seconds_max,
            f"{protocol}.answers_bytes_max",
            max(answers_bytes_max // 2, answer_bytes_max),
        ),
    )
